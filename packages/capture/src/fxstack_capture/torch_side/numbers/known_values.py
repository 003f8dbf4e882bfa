"""Values of tensors that the program computes from constants: ``torch.linspace(0, rate, depth)[2].item()``.

If Python needs the value of a tensor, the tracer collects the nodes that compute the tensor. If the nodes are
few, read no input and draw no random numbers, the tracer runs them for real. The graph would compute the same
value in every call.
"""

from __future__ import annotations

from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import fx

from fxstack_capture import torch_compat
from fxstack_capture.torch_compat import FakeTensor, OpOverload
from fxstack_capture.torch_compat import disable_current_modes as _disable_current_modes
from fxstack_capture.torch_side.fakes.writes import OperatorMode
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

# Limits: at most 256 operators on at most 4,096 elements are run. ``nonzero`` and masks of such tensors break
# the graph.

_MAX_NODES = 256
_MAX_ELEMENTS = 4096
_CALLABLE = (BuiltinFunctionType, MethodDescriptorType, OpOverload)
_UNWRITTEN = frozenset(
    ["empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"]
)


class _NotKnownError(Exception):
    """Raised if a value depends on more than the program's constants."""


def value_of(tracer: TracerProtocol, tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a real tensor with the value of the fake ``tensor``. None if the value is unknown."""
    if type(tensor) is not FakeTensor or tracer.transforms.inside:
        return None
    node = tracer.builder.maker_of(tensor)
    if node is None:
        return None
    try:
        with tracer.unrecorded():
            nodes = _history(tracer, node)
            with torch.no_grad(), _disable_current_modes(), _Checked():
                return _run(nodes)
    except _NotKnownError:
        return None


def _history(tracer: TracerProtocol, last: fx.Node) -> list[fx.Node]:
    """Return ``last`` and all nodes on which it depends, in graph order."""
    history: set[fx.Node] = set()
    waiting = [last]
    while waiting:
        node = waiting.pop()
        if node in history:
            continue
        _demand_known(tracer, node)
        history.add(node)
        if len(history) > _MAX_NODES:
            raise _NotKnownError
        waiting.extend(node.all_input_nodes)
    return sorted(history)


def _demand_known(tracer: TracerProtocol, node: fx.Node) -> None:
    """Raise ``_NotKnownError`` for an input, a node of unknown kind, a large tensor, or a tensor that is
    written to.
    """
    if node.op != "call_method" and not (node.op == "call_function" and isinstance(node.target, _CALLABLE)):
        raise _NotKnownError
    for fake in torch_compat.tree_leaves(node.meta.get("val")):
        if not _is_small(fake) or fake.untyped_storage()._cdata in tracer.mutated_storages:
            raise _NotKnownError


def _is_small(value: Any) -> bool:
    """Return whether a fake is a CPU tensor that is small enough to compute its value quickly."""
    return (
        type(value) is FakeTensor
        and value.device.type == "cpu"
        and value.layout is torch.strided
        and not value._has_symbolic_sizes_strides
        and value.numel() <= _MAX_ELEMENTS
    )


def _run(nodes: list[fx.Node]) -> torch.Tensor:
    """Run the nodes on real tensors, and return the value of the last node."""
    values: dict[fx.Node, Any] = {}
    for node in nodes:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        values[node] = _call(node, args, kwargs)
        _demand_like(values[node], node.meta["val"])
    return values[nodes[-1]]


def _call(node: fx.Node, args: Args, kwargs: Kwargs) -> Any:
    """Return the result of the node's target, called on real tensors."""
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _demand_like(value: object, fake: object) -> None:
    """Raise ``_NotKnownError`` if the dtype or the shape of the real result differs from the fake."""
    # The autocast state or the default dtype may differ from those when the node was made.
    leaves = torch_compat.tree_leaves
    for real, leaf in zip(leaves(value), leaves(fake), strict=True):
        if real.dtype != leaf.dtype or real.shape != leaf.shape:
            raise _NotKnownError


class _Checked(OperatorMode):
    """Raises ``_NotKnownError`` for each operator of ``_run`` that draws random numbers or writes to a
    tensor.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        random = torch.Tag.nondeterministic_seeded in func.tags
        if random or func.namespace not in ("aten", "prims", "prim") or func._schema.is_mutable:
            raise _NotKnownError
        if func._schema.name.rpartition("::")[2] in _UNWRITTEN:
            raise _NotKnownError
        return func(*args, **(kwargs or {}))
