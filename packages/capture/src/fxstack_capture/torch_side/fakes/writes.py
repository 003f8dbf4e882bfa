"""What an operator writes to that the version counters of its arguments do not show.

Operators on lists of tensors count their changes in their kernels, which fakes do not run, and inference tensors have no
counter: the schemas of the operators that run say it.
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
    """``tensor.is_leaf``; None of one of several views whose memory was changed, as torch refuses to make its new history."""
    try:
        return bool(tensor.is_leaf)
    except RuntimeError:
        return None


def version_of(tensor: torch.Tensor) -> int | None:
    """The version counter; None for tensors without one."""
    return None if tensor.is_inference() else tensor._version


def has_changed(tensor: torch.Tensor, version: int | None, listener: Listener | None) -> bool:
    """Whether a call wrote to a tensor that had ``version`` before; for one without, if nobody listened, it may have."""
    if version is None:
        return listener is None or listener.wrote_to(tensor)
    return bool(tensor._version != version)


def written_lists(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
    """The tensors, by id, that a call of an operator on lists writes to.

    One that is there twice is written to twice, of which the functional form of these operators knows nothing.
    """
    found = [id(tensor) for tensor in _written_to(fn, args, kwargs)]
    if len(set(found)) < len(found):
        raise graph_break("unsupported-call", f"{fn.__name__} of one tensor twice")
    return set(found)


class Listener(TorchDispatchMode):
    """Notes the storages that the operators of a call write to."""

    def __init__(self) -> None:
        super().__init__()
        self._written: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch would otherwise wrap ``__torch_dispatch__`` to hide it from its own compiler."""
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
    """Position and name of the arguments that an operator writes to, the same in all of its overloads."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return ()
    return written_arguments(getattr(packet, packet.overloads()[0]))


@cache
def written_arguments(operator: Any) -> tuple[tuple[int, str], ...]:
    """Position and name of the arguments that an overload writes to."""
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(operator._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
