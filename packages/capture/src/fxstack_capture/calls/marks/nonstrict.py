"""``nonstrict_trace``: record the operators that a function calls, without tracing its Python.

A call is one node of the captured graph. The next stage traces the node into operators. Arguments and results
are trees of tensors and plain values. Instances of classes that ``torch.utils._pytree`` knows are flattened
before the node and rebuilt after the node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.calls.marks.program_rules import label_of
from fxstack_capture.guards.records import IdentityIs
from fxstack_capture.sources import pinned
from fxstack_capture.torch_compat import FakeTensor, pytree
from fxstack_capture.torch_side.recording.constants import is_constant
from fxstack_capture.torch_side.recording.execution import run_fake
from fxstack_capture.trace.effect_diff import diff
from fxstack_capture.trace.effects import Call
from fxstack_capture.trace.rule_registry import Rule
from fxstack_capture.trace.state import Args, Kwargs, Trace

_CONTEXTS = (str, int, float, type, type(None))
"""The classes of plain values that may be in the contexts of pytrees."""


def as_operations(fn: Callable[..., Any]) -> Rule:
    """Return the rule that records a call of ``fn`` as one node. The next stage traces the operators of the
    node. Break the graph for an argument that is not a tensor, symbolic number, module or constant.
    """

    def rule(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
        leaves, spec = trace.calls.call(pytree.tree_flatten, ((args, kwargs),), {})
        modules = {i: _module(trace, fn, v) for i, v in enumerate(leaves) if _is_module(v)}
        for i, leaf in enumerate(leaves):
            is_supported = isinstance(leaf, torch.Tensor) or trace.torch.is_symbolic(leaf)
            if not is_supported and i not in modules and not is_constant(leaf):
                raise _refusal(fn, f"an argument of {type(leaf).__qualname__}")
        body = _on_leaves(fn, _real_spec(trace, fn, spec), modules)
        arguments = [None if i in modules else leaf for i, leaf in enumerate(leaves)]
        try:
            return trace.torch.call(body, tuple(arguments), {})
        except GraphBreak as reason:
            if _IS_REAL not in reason.record.detail:
                raise
            read = _read_from_outside(trace, body, arguments)
            if not read:
                raise
        body = _with_tensors(body, [*read])
        return trace.torch.call(body, (*read.values(), *arguments), {})

    return rule


_IS_REAL = "Please convert all Tensors to FakeTensors"
"""A part of torch's error text if the function read a real tensor that is not among its arguments."""


def _is_module(value: object) -> bool:
    """Whether an argument is a module. The function gets the module itself."""
    return isinstance(value, torch.nn.Module)


def _module(trace: Trace, fn: object, module: object) -> Any:
    """Return the real module of an argument, and guard its identity. Break the graph if the trace has made
    the module or changed any object.

    The function reads the tensors of the module in the same way as tensors of a closure.
    """
    objects = trace.objects
    original, source = objects.original_of(module), objects.source_of(module)
    if source is None or any(type(effect) is not Call for effect in diff(objects)):
        raise _refusal(fn, f"a {type(module).__qualname__} that was made or changed inside")
    trace.guard(source, IdentityIs(original, id(original)))
    return original


class _Replacing(TorchFunctionMode):
    """A mode that replaces each tensor among the arguments of a torch call by ``replace(tensor)``."""

    def __init__(self, replace: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._replace = replace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._replace, (args, kwargs or {}))
        return func(*args, **kwargs)


def _read_from_outside(
    trace: Trace, body: Callable[..., Any], leaves: list[Any]
) -> dict[torch.Tensor, torch.Tensor]:
    """Return the fakes of the tensors that ``body`` reads from its closure or from a module: tensor -> fake.

    To find these tensors, the function runs once on fakes. The result is empty if this run has written to an
    argument.
    """
    fakes: dict[torch.Tensor, torch.Tensor] = {}

    def replace(tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        if tensor not in fakes:
            fakes[tensor] = trace.objects.enter(tensor, pinned(tensor, f"read_{len(fakes)}"))
        return fakes[tensor]

    def rehearsed(*leaves: object) -> None:
        with _Replacing(replace):
            body(*leaves)

    tracer = trace.torch
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    versions = [tensor._version for tensor in tensors]
    with tracer.unrecorded():
        run_fake(tracer.mode, rehearsed, tuple(leaves), {})
    # If the run has written to a tensor, a second run would write to it again.
    return fakes if versions == [tensor._version for tensor in tensors] else {}


def _with_tensors(body: Callable[..., Any], tensors: list[torch.Tensor]) -> Callable[..., Any]:
    """Return a function that takes ``tensors`` first, and uses them in the torch calls of ``body``."""

    def on_leaves(*leaves: object) -> Any:
        instead = {id(tensor): leaf for tensor, leaf in zip(tensors, leaves, strict=False)}
        with _Replacing(lambda tensor: instead.get(id(tensor), tensor)):
            return body(*leaves[len(tensors) :])

    on_leaves.__name__ = body.__name__
    return on_leaves


def _refusal(fn: object, argument_text: str) -> BaseException:
    """Return the graph break for an argument that cannot be flattened. ``argument_text`` describes the argument."""
    text = f"{label_of(fn)}, marked with nonstrict_trace, with {argument_text} (register its class with torch.utils._pytree)"
    return graph_break("unsupported-call", text)


def _real_spec(trace: Trace, fn: object, spec: object) -> Any:
    """Return the tree structure as real ``torch.utils._pytree`` objects. They outlive the trace.

    Raises GraphBreak if a context of the structure contains objects of the program.
    """
    objects = trace.objects
    original = objects.original_of(spec)
    if original is not spec:  # the structure of a leaf is a unique object of torch
        return original
    if not _is_plain_context(spec.context):
        raise _refusal(fn, "an argument whose pytree context holds other objects")
    children = [_real_spec(trace, fn, child) for child in spec.children()]
    return pytree.TreeSpec(spec.type, spec.context, children)


def _is_plain_context(context: Any) -> bool:
    """Whether the context of a tree contains only plain values, possibly in lists and tuples."""
    if type(context) in (list, tuple):
        return all(map(_is_plain_context, context))
    return isinstance(context, _CONTEXTS)


def _on_leaves(
    fn: Callable[..., Any], spec: object, modules: Mapping[int, torch.nn.Module]
) -> Callable[..., Any]:
    """Return a function of the flat arguments. It rebuilds the arguments by ``spec`` and calls ``fn``.

    ``modules`` maps positions among the flat arguments to modules.
    """

    def on_leaves(*leaves: object) -> Any:
        arguments = [modules.get(i, leaf) for i, leaf in enumerate(leaves)]
        args, kwargs = pytree.tree_unflatten(arguments, spec)
        return fn(*args, **kwargs)

    on_leaves.__name__ = getattr(fn, "__name__", "nonstrict")
    return on_leaves
