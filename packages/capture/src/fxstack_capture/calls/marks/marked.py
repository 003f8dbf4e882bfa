"""Functions that ``torch.compiler``, ``torch._dynamo`` or this package has marked, and functions of
compilers.

A call of most of these functions breaks the graph. Some functions of compilers have a meaning in compiled
code. ``rules.torch.compiler_functions`` has rules for them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MappingProxyType
from typing import Any

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.marks.leaf_functions import call_leaf_function
from fxstack_capture.calls.marks.nonstrict import as_operations
from fxstack_capture.calls.marks.program_rules import call_once, ending_the_graph, record_as_node
from fxstack_capture.trace.rule_registry import Rule
from fxstack_capture.trace.state import Args, Kwargs, Trace

_COMPILER_MODULES = (
    "torch._dynamo",
    "torch.compiler",
    "torch._inductor",
    "torch._compile",
    "fxstack_capture.annotations",
    "fxstack_capture.api",
    "fxstack.api",
    "fxstack_capture.marking",
    "fxstack_capture.stance",
)
"""Prefixes of module names that belong to compilers."""
_TRACED = frozenset(
    {
        "torch._dynamo._trace_wrapped_higher_order_op",
        "torch._dynamo.external_utils",
        "torch._dynamo.compiled_autograd.copy_slices_prologue",
        "torch._dynamo.compiled_autograd.copy_slices_epilogue",
        "torch._dynamo.decorators.patch_dynamo_config",
        "torch._dynamo.decorators._patch_dynamo_config_check",
        "torch._dynamo.decorators.DynamoConfigPatchProxy.__init__",
        "torch._dynamo.decorators.DynamoConfigPatchProxy.__enter__",
        "torch._dynamo.decorators.DynamoConfigPatchProxy.__exit__",
        "torch._dynamo.utils.is_safe_constant",
        "torch._dynamo.utils.istype",
        "torch.compiler.nested_compile_region",
    }
)
"""Modules and functions in torch's compiler that are traced like functions of a program.

Under the mode of the first one, ``mask[index]`` can be mapped over indices. Graphs of compiled autograd, and
hooks in them, call the next three. The patches of settings affect the next graph. ``nested_compile_region`` marks
a function that the compiled one calls.
"""


def rule_of_mark(fn: FunctionType) -> Rule | None:
    """Return the rule that a mark of ``fn`` demands, or the rule of functions of a compiler.

    Return None if ``fn`` has no mark and is no function of a compiler. The row "marked" of ``precedence``
    calls this.
    """
    attributes = fn.__dict__
    if attributes:
        for name, rule in _MARKS.items():
            if attributes.get(name):
                return rule
    module = fn.__module__
    is_of_compiler = type(module) is str and module.startswith(_COMPILER_MODULES)
    if is_of_compiler and (module in _TRACED or f"{module}.{fn.__qualname__}" in _TRACED):
        return None
    if torch_compat.is_allowed_by_torch(fn):
        return _rule_by_torch(fn)
    return _of_compiler if is_of_compiler else None


def _rule_by_torch(fn: FunctionType) -> Rule:
    """Return the rule of a function that the program gave to ``torch._dynamo.allow_in_graph`` or
    ``nonstrict_trace``.
    """
    if torch_compat.is_told(fn, "_leaf_function_ids"):
        return call_leaf_function
    is_nonstrict = torch_compat.is_told(fn, "_nonstrict_trace_callable_ids")
    return as_operations(fn) if is_nonstrict else record_as_node


def _of_compiler(_trace: Trace, fn: Callable[..., Any], _args: Args, _kwargs: Kwargs) -> Any:
    """Break the graph at a function of a compiler."""
    raise graph_break("disabled", f"{fn.__qualname__}, a function of a compiler,")


def _disabled(_trace: Trace, fn: FunctionType, _args: Args, _kwargs: Kwargs) -> Any:
    """Break the graph at a function that ``disable`` marked. The message contains the program's reason."""
    reason = fn.__dict__.get("_torchdynamo_disable_msg") or fn.__dict__.get("_fxstack_disable")
    detail = f"{fn.__qualname__} ({reason})" if isinstance(reason, str) else fn.__qualname__
    raise graph_break("disabled", detail)


def _forbidden(trace: Trace, fn: FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """Break the graph at a function that the program forbids in compiled code. This is an error."""
    # Torch also forbids some functions of its compiler. Here, their calls run between graphs.
    is_of_compiler = (fn.__module__ or "").startswith(_COMPILER_MODULES)
    return ending_the_graph("disabled" if is_of_compiler else "forbidden")(trace, fn, args, kwargs)


_MARKS: MappingProxyType[str, Rule] = MappingProxyType(
    {
        "_torchdynamo_disable": _disabled,
        "_fxstack_disable": _disabled,
        "_dynamo_marked_constant": call_once,
        "_dynamo_forbidden": _forbidden,
    }
)
"""Maps the attribute that ``disable`` and similar functions set on a function to the rule."""
