"""What an operator writes to that the version counters of its arguments do not show.

Operators on lists of tensors count their changes in their kernels, which stand-ins do not run: their schemas say it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from fxstack_capture.breaks import graph_break

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIXES = ("_foreach_", "_fused_", "_amp_foreach_")


def written_lists(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
    """The tensors, by id, that a call of an operator on lists writes to.

    One that is there twice is written to twice, of which the functional form of these operators knows nothing.
    """
    found = [id(tensor) for tensor in _written_to(fn, args, kwargs)]
    if len(set(found)) < len(found):
        raise graph_break("unsupported-call", f"{fn.__name__} of one tensor twice")
    return set(found)


def _written_to(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[torch.Tensor]:
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
    schema = getattr(packet, packet.overloads()[0])._schema
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
