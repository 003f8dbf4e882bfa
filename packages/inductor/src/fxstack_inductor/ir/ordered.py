"""Tensors whose elements depend on an order: scatters write in one, scans carry a value along one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fxstack_inductor.ir.expr import Expr, loop_var
from fxstack_inductor.ir.nodes import Computed, Read, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from fxstack_inductor.ir.nodes import Body, Coord, Node, Shape


PERSISTENT = 8192
"""Longest inner extent that a program on a GPU holds in one tile."""


@dataclass(eq=False, kw_only=True, repr=False)
class Scatter(Computed):
    """``init``, into which the elements of a source are put one after the other.

    For each point ``r0, r1, ...`` of ``ranges``, the last one fastest, element ``target`` becomes ``op`` of what it is and
    of ``body``: ``set``, ``add``, ``mul``, ``max`` or ``min``. Both tensors are one piece of memory, so nothing else may
    read ``init``.
    """

    init: Node
    ranges: Shape
    target: tuple[Coord, ...]
    op: str

    @cached_property
    def reduced(self) -> tuple[Expr, ...]:
        return tuple(loop_var(f"r{k}", size) for k, size in enumerate(self.ranges))

    @property
    def parts(self) -> Iterator[Body]:
        yield from walk(self.body)
        # As a read of ``init``, the target has what its coordinates are computed from for parts.
        yield from walk(Read(self.init, self.target))

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        found = [b for b in self.parts if isinstance(b, Read) and b.node is not self.init]
        return tuple(dict.fromkeys([*found, Read(self.init, self.index)]))


@dataclass(eq=False, kw_only=True, repr=False)
class Scan(Computed):
    """Element ``i0, i1, ...`` is ``op`` over ``body`` at all positions along ``axis`` up to its own.

    ``op`` is ``sum``, ``prod``, ``max``, ``min``, ``logaddexp``, or ``argmax`` and ``argmin`` for the last position of the
    extreme so far. The running value has dtype ``state``.
    """

    op: str
    axis: int
    state: torch.dtype
