"""Memory for intermediate tensors, kept between calls.

A call borrows a block and gives it back; the next call, of whatever graph, gets the same memory, still mapped and
perhaps still in cache. That saves allocations, page faults and tensor objects: what a graph needs
of a block (pointers, tensors) is made once per block and kept with it. Calls that run at the same time borrow different blocks.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch

from fxstack_inductor.schedule.memory import Slot, place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_inductor.ir.expr import Expr

PAGE = 4096
SHAPES_KEPT = 8
"""For how many combinations of symbolic sizes a graph's view of a block is kept."""


@dataclass(eq=False)
class Block:
    memory: torch.Tensor
    prepared: WeakKeyDictionary[Workspace, OrderedDict[tuple[int, ...], tuple[Any, ...]]] = field(
        default_factory=WeakKeyDictionary
    )


@dataclass(eq=False)
class Pool:
    """Blocks that nobody is using. List operations are atomic, so no lock is needed."""

    free: list[Block] = field(default_factory=list)

    def borrow(self, size: int) -> Block:
        try:
            block = self.free.pop()
        except IndexError:
            return _allocate(size)
        # A block that is too small is dropped for a larger one, which then serves all graphs.
        return block if block.memory.numel() >= size else _allocate(size)


def _allocate(size: int) -> Block:
    rounded = -(-max(size, 1) // PAGE) * PAGE
    return Block(torch.empty(rounded, dtype=torch.uint8))


@lru_cache(maxsize=1)
def shared_pool() -> Pool:
    """The pool of this process."""
    return Pool()


@dataclass(frozen=True, slots=True)
class Window:
    """A strided tensor in the memory of slot ``slot``, ``offset`` elements from its start."""

    slot: int
    shape: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    offset: Expr


def flat(addresses: list[int], tensors: list[torch.Tensor]) -> tuple[Any, ...]:
    """What the Python host program unpacks."""
    return (*addresses, *tensors)


@dataclass(eq=False)
class Workspace:
    """What one graph keeps in a block: for each slot its address, and tensors over slots.

    ``take(sizes)`` gives a tuple of the block and what ``pack`` makes of addresses and tensors; ``give(block)`` returns
    the block.
    """

    slots: Sequence[Slot]
    windows: Sequence[Window]
    symbols: Sequence[str]
    pool: Pool
    pack: Callable[[list[int], list[torch.Tensor]], tuple[Any, ...]] = flat
    sizes: dict[tuple[int, ...], tuple[list[int], int]] = field(default_factory=dict)

    def take(self, *sizes: int) -> tuple[Any, ...]:
        if sizes not in self.sizes:
            if len(self.sizes) >= 64 * SHAPES_KEPT:
                self.sizes.clear()
            self.sizes[sizes] = place(self.slots, dict(zip(self.symbols, sizes, strict=True)))
        offsets, total = self.sizes[sizes]
        block = self.pool.borrow(total)
        kept = block.prepared.get(self)
        if kept is None:
            kept = block.prepared[self] = OrderedDict()
        found = kept.get(sizes)
        if found is None:
            found = kept[sizes] = self._prepare(block.memory, sizes, offsets)
            if len(kept) > SHAPES_KEPT:
                kept.popitem(last=False)
        return (block, *found)

    def give(self, block: Block) -> None:
        self.pool.free.append(block)

    def _prepare(
        self, memory: torch.Tensor, sizes: tuple[int, ...], offsets: list[int]
    ) -> tuple[Any, ...]:
        values = dict(zip(self.symbols, sizes, strict=True))
        start = memory.data_ptr()
        tensors = []
        for window in self.windows:
            dtype = self.slots[window.slot].layout.dtype
            typed = memory[: memory.numel() // 16 * 16].view(dtype)
            offset = offsets[window.slot] // dtype.itemsize + window.offset.evaluate(values)
            shape = [s.evaluate(values) for s in window.shape]
            stride = [s.evaluate(values) for s in window.stride]
            tensors.append(typed.as_strided(shape, stride, offset))
        return self.pack([start + offset for offset in offsets], tensors)
