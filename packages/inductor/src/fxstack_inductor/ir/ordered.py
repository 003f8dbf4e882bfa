"""Tensors with ordered elements: a scatter writes in order, a scan carries a value along an axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from fxstack_inductor.ir.expr import Expr, loop_var
from fxstack_inductor.ir.kernel import Combine
from fxstack_inductor.ir.nodes import Body, Computed, Coord, Node, Read, Shape, walk

PERSISTENT = 8192
"""The longest inner extent that a GPU program holds in one tile."""


@dataclass(eq=False, kw_only=True, repr=False)
class Scatter(Computed):
    """The tensor ``init`` after the elements of a source have updated it one after the other.

    For each point ``r0, r1, ...`` of ``ranges``, last dimension fastest, ``op`` combines element ``target``
    with ``body``: ``set``, ``add``, ``mul``, ``max`` or ``min``. Both tensors use the same memory, so no
    other node may read ``init``.
    """

    init: Node
    ranges: Shape
    target: tuple[Coord, ...]
    """The coordinates in ``init`` of the element that a point changes."""
    op: str

    @cached_property
    def reduced(self) -> tuple[Expr, ...]:
        """The loop variables ``r0, r1, ...`` over the source."""
        return tuple(loop_var(f"r{k}", size) for k, size in enumerate(self.ranges))

    @property
    def parts(self) -> Iterator[Body]:
        """Every part of the values, and of the coordinates to which they go."""
        yield from walk(self.body)
        # ``walk`` of a read of ``init`` at ``target`` also yields the expressions of computed coordinates in
        # ``target``.
        yield from walk(Read(self.init, self.target))

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        direct = [b for b in self.parts if isinstance(b, Read) and b.node is not self.init]
        return tuple(dict.fromkeys([*direct, Read(self.init, self.index)]))


@dataclass(eq=False, kw_only=True, repr=False)
class Scan(Computed):
    """Element ``i0, i1, ...`` is ``op`` over ``body`` at all positions along ``axis`` up to the element's position.

    ``op`` is ``sum``, ``prod``, ``max``, ``min`` or ``logaddexp``; ``argmax`` and ``argmin`` give the last
    position of the extreme so far. The running value has dtype ``state``. ``combine`` runs several values at once:
    ``body`` is a call ``tuple`` of these values, the function ``combine`` joins two tuples, and the tensor is its result
    ``part``.
    """

    op: str
    axis: int
    state: torch.dtype
    combine: Combine | None = None
    part: int = 0
