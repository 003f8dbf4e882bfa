"""Writes of operators that the version counters of the arguments do not show.

Operators on lists of tensors increment the version counters in their kernels, which do not run on fakes.
Inference tensors have no version counter. For both, the schemas of the operators name the written arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_compat import OpOverload, TorchDispatchMode, tree_leaves

_PREFIXES = ("_foreach_", "_fused_", "_amp_foreach_")


def is_leaf(tensor: torch.Tensor) -> bool | None:
    """Return ``tensor.is_leaf``, or ``None`` if torch cannot regenerate the ``grad_fn`` of the tensor."""
    # The tensor is one of several views that one operator returned, and a write has changed their memory.
    try:
        return bool(tensor.is_leaf)
    except RuntimeError:
        return None


def version_of(tensor: torch.Tensor) -> int | None:
    """Return the version counter, or ``None`` for an inference tensor, which has no counter."""
    return None if tensor.is_inference() else tensor._version


def has_changed(tensor: torch.Tensor, version: int | None, listener: Listener | None) -> bool:
    """Whether a call wrote to a tensor whose version counter was ``version`` before the call."""
    # Without a version counter and without a listener, the call may have written to the tensor.
    if version is None:
        return listener is None or listener.wrote_to(tensor)
    return bool(tensor._version != version)


def written_lists(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
    """Return the ids of the tensors that an operator on lists writes to."""
    # The operator writes twice to a tensor that the list holds twice. The functional form of the operator
    # does not express two writes to one tensor.
    found = [id(tensor) for tensor in _written_to(fn, args, kwargs)]
    if len(set(found)) < len(found):
        raise graph_break("unsupported-call", f"{fn.__name__} of one tensor twice")
    return set(found)


class Listener(TorchDispatchMode):
    """Collects the storages that the operators of a call write to."""

    def __init__(self) -> None:
        super().__init__()
        self._written: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not wrap ``__torch_dispatch__``."""
        # The wrapper would disable torch's own compiler in ``__torch_dispatch__``.
        return False

    def wrote_to(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._written

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for position, name in written_arguments(func):
            given = args[position] if position < len(args) else kwargs.get(name)
            for value in tree_leaves(given):
                if isinstance(value, torch.Tensor):
                    self._written.add(value.untyped_storage()._cdata)
        return func(*args, **kwargs)


def _written_to(fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
    name = getattr(fn, "__name__", "")
    if not name.startswith(_PREFIXES):
        return
    for position, argument in _written(name.partition(".")[0]):
        given = args[position] if position < len(args) else kwargs.get(argument)
        for value in tree_leaves(given):
            if isinstance(value, torch.Tensor):
                yield value


@cache
def _written(name: str) -> tuple[tuple[int, str], ...]:
    """Return the position and name of each argument that an operator writes to."""
    # All overloads of these operators write to the same arguments.
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    return written_arguments(getattr(packet, packet.overloads()[0]))


@cache
def written_arguments(operator: Any) -> tuple[tuple[int, str], ...]:
    """Return the position and name of each argument that an overload writes to."""
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(operator._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
