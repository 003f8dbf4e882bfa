"""``torch.compiler.leaf_function``: a function that runs as it is, as one node of the graph.

The node calls torch's operator ``invoke_leaf_function`` with the function, its fake implementation, and the flat
arguments. A module among the arguments becomes its parameters and buffers; torch looks the module up by a number
when the graph runs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.calls.marks.program_rules import label_of
from fxstack_capture.guards.records import IdentityIs
from fxstack_capture.torch_compat import pytree
from fxstack_capture.torch_side.higher_order.operators import record_held
from fxstack_capture.torch_side.recording.constants import is_constant
from fxstack_capture.trace.effect_diff import diff
from fxstack_capture.trace.effects import Call
from fxstack_capture.trace.state import Args, Kwargs, Trace

if TYPE_CHECKING:
    from fxstack_capture.torch_side.recording.protocol import TracerProtocol

_OPERATOR = getattr(torch.ops.higher_order, "invoke_leaf_function", None)
"""The operator; None in a torch without it."""
_MARK = "_torchdynamo_leaf_"
"""The beginning of the attributes that ``leaf_function`` sets on its function."""


def call_leaf_function(trace: Trace, fn: FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """Record the call of a function that the program marked with ``leaf_function``."""
    if _OPERATOR is None:
        raise graph_break("disabled", f"{label_of(fn)}, a leaf function,")
    real, fake, written, hook, hook_fake = (
        trace.objects.original_of(trace.objects.load_attr(fn, f"{_MARK}{name}"))
        for name in ("real_fn", "fake_fn", "mutates_args", "hook_fn", "hook_fake_fn")
    )
    if fake is None:
        _raise_missing(getattr(real, "__name__", real))
    flat, spec = pytree.tree_flatten(_with_states(trace, fn, (args, kwargs)))
    for leaf in flat:
        if not (isinstance(leaf, torch.Tensor) or trace.torch.is_symbolic(leaf) or is_constant(leaf)):
            raise graph_break(
                "unsupported-call", f"{label_of(fn)}, a leaf function, with a {type(leaf).__qualname__}"
            )
    indices = _resolve(real, written, len(flat), spec) if written else ""
    result_spec: list[Any] = [None]
    functions = [
        torch_compat.LeafCallable(f)
        for f in torch_compat.make_leaf_function_wrappers(real, fake, result_spec)
    ]
    if hook is not None:
        functions[0]._leaf_hook_real_fn, functions[0]._leaf_hook_fake_fn = hook, hook_fake
    held = {"real_fn": functions[0], "fake_fn": functions[1], "input_spec": spec}
    tracer = cast("TracerProtocol", trace.torch)
    results = record_held(tracer, _OPERATOR, held, (indices, *flat))
    for index in filter(None, indices.split(",")):
        tracer.note_mutated(flat[int(index)])
    return pytree.tree_unflatten(results, result_spec[0])


@calls_program
def _raise_missing(name: object) -> None:
    """Raise the error of a call of a leaf function without a fake implementation."""
    raise ValueError(
        f"leaf_function '{name}' requires a fake implementation. Please provide one using the @<func>.register_fake "
        "decorator. See the leaf_function docstring for details."
    )


@calls_program
def _resolve(fn: Callable[..., Any], written: Any, count: int, spec: pytree.TreeSpec) -> str:
    """Return the positions of the flat arguments that the function writes to, as torch's operator takes them."""
    positions: str = torch_compat.resolve_mutated_flat_indices(fn, frozenset(written), count, spec)
    return positions


def _with_states(trace: Trace, fn: FunctionType, arguments: tuple[Args, Kwargs]) -> Any:
    """Return ``arguments`` with the parameters and buffers of each module in place of the module."""
    numbers: dict[int, int] = {}

    def state_of(value: Any) -> Any:
        if not isinstance(value, torch.nn.Module):
            return value
        objects = trace.objects
        module, source = objects.original_of(value), objects.source_of(value)
        if source is None or any(type(effect) is not Call for effect in diff(objects)):
            raise graph_break(
                "unsupported-call", f"{label_of(fn)}, a leaf function, with a module that was changed"
            )
        trace.guard(source, IdentityIs(module, id(module)))
        if id(module) not in numbers:
            (numbers[id(module)],) = torch_compat.store_makefx_modules([module])
        tensors = trace.calls.call(_tensors_of, (value,), {})
        return torch_compat.LeafModuleState(numbers[id(module)], *tensors)

    return pytree.tree_map(state_of, arguments, is_leaf=lambda value: isinstance(value, torch.nn.Module))


def _tensors_of(module: torch.nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters and the buffers of a module by name. The interpreter runs this function."""
    return dict(module.named_parameters()), dict(module.named_buffers())
