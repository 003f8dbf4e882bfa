"""Memory for intermediate tensors, kept between calls.

A call borrows a block and returns it. The next call, of any graph, gets the same memory, still mapped and
perhaps still in cache. Reuse saves allocations, page faults and tensor objects: the pointers and tensors that
a graph needs in a block are made once per block and kept with the block. Concurrent calls borrow different
blocks.

Tensors whose symbolic sizes change from call to call (e.g. a key cache) keep their places while the places
are large enough.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch

from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.schedule.memory import Slot, arrange

# Limits: torch allocates saved tensors of a forward and results of a backward in each step. The C library may
# return this memory to the system in between (measured for a GPT of 6 layers: 130 page faults per step, eager
# 11,800; peak 547 MB, eager 574).

PAGE = 4096
"""Bytes of a page; blocks are whole pages."""
SHAPES_KEPT = 8
"""The number of size combinations for which a graph's pointers and tensors in a block are kept."""
ROOM = 8
"""After a change of sizes, places get 1/``ROOM`` more memory than they need."""


@dataclass(eq=False)
class Block:
    """Memory for one call at a time. ``prepared`` holds what graphs have computed for it, by graph and sizes."""

    memory: torch.Tensor
    """The bytes of the block."""
    prepared: WeakKeyDictionary[Workspace, OrderedDict[tuple[int, ...], tuple[Any, ...]]] = field(
        default_factory=WeakKeyDictionary
    )
    recent: tuple[ref[Workspace], tuple[int, ...], tuple[Any, ...]] | None = None
    """The graph of the last call, its sizes, and the data of ``prepared``: calls of a region follow each other."""


@dataclass(eq=False)
class Pool:
    """Unused blocks. List operations are atomic, so no lock is needed."""

    free: list[Block] = field(default_factory=list)
    """Blocks that no call uses now; the block returned last is borrowed first."""

    def borrow(self, size: int) -> Block:
        """Return a block of at least ``size`` bytes; the caller gives it back by appending it to ``free``."""
        try:
            block = self.free.pop()
        except IndexError:
            return _allocate(size)
        # A block that is too small is dropped for a larger block, which then serves all graphs.
        return block if block.memory.numel() >= size else _allocate(size)


def _allocate(size: int) -> Block:
    """Return a new block of whole pages."""
    rounded = -(-max(size, 1) // PAGE) * PAGE
    return Block(torch.empty(rounded, dtype=torch.uint8))


@lru_cache(maxsize=1)
def settle_allocator() -> None:
    """Let the C library keep freed memory of up to 62 MiB, so that the next step need not map it again.

    glibc returns less memory to the system, and takes larger tensors from its heap, once a block of nearly 32 MiB has been
    freed (``man mallopt``: M_MMAP_THRESHOLD). The block is never touched. Other C libraries ignore it.
    """
    _allocate(31 << 20)


@lru_cache(maxsize=1)
def shared_pool() -> Pool:
    """Return the pool that all graphs of this process share."""
    return Pool()


@dataclass(frozen=True, slots=True)
class Window:
    """A strided tensor in the memory of slot ``slot``, ``offset`` elements from the slot's start."""

    slot: int
    shape: tuple[Expr, ...]
    stride: tuple[Expr, ...]
    offset: Expr


def flat(addresses: list[int], tensors: list[torch.Tensor]) -> tuple[Any, ...]:
    """Return the values that the Python host program unpacks: addresses, then tensors."""
    return (*addresses, *tensors)


@dataclass(frozen=True, slots=True)
class Placement:
    """The places of a graph's slots in a block of ``total`` bytes, for the values ``sizes`` of its symbols.

    ``values`` are the results of ``Workspace.measured``; ``room`` lists the bytes of each slot.
    """

    sizes: tuple[int, ...]
    values: Sequence[int]
    room: Sequence[int]
    offsets: Sequence[int]
    """The byte at which each slot starts."""
    total: int


@dataclass(eq=False)
class Workspace:
    """The data of one graph in a block: the address of each slot, and tensors over slots.

    Host programs call ``take(sizes)`` first: it returns the block and the result of ``pack`` on addresses
    and tensors. At the end they call ``give(block)``.
    """

    slots: Sequence[Slot]
    windows: Sequence[Window]
    symbols: Sequence[str]
    """Names of the sizes that ``take`` gets, in order."""
    pool: Pool
    """Where blocks are borrowed: the process's only pool."""
    pack: Callable[[list[int], list[torch.Tensor]], tuple[Any, ...]] = flat
    latest: Placement | None = None
    """The placement of the last call."""
    known: OrderedDict[tuple[int, ...], Placement] = field(default_factory=OrderedDict)
    """Placements by sizes, for programs that return to earlier sizes."""

    def __post_init__(self) -> None:
        exprs = [s.elements for s in self.slots]
        for window in self.windows:
            exprs += [*window.shape, *window.stride, window.offset]
        self.measured = Sizes(self.symbols, exprs)

    def take(self, *sizes: int) -> tuple[Any, ...]:
        """Borrow a block for a call with these sizes; the host program calls this method first."""
        try:
            block = self.pool.free.pop()
        except IndexError:
            return self._take(sizes)
        recent = block.recent
        if recent is not None and recent[0]() is self and recent[1] == sizes:
            return (block, *recent[2])
        self.pool.free.append(block)
        return self._take(sizes)

    def _take(self, sizes: tuple[int, ...]) -> tuple[Any, ...]:
        """Borrow a block whose last call was another one."""
        placement = self.latest
        if placement is None or placement.sizes != sizes:
            placement = self.latest = self._known(sizes, placement)
        block = self.pool.borrow(placement.total)
        prepared = block.prepared.get(self)
        if prepared is None:
            prepared = block.prepared[self] = OrderedDict()
        packed = prepared.get(sizes)
        if packed is None:
            packed = prepared[sizes] = self._prepare(block.memory, placement)
            if len(prepared) > SHAPES_KEPT:
                prepared.popitem(last=False)
        block.recent = ref(self), sizes, packed
        return (block, *packed)

    def _known(self, sizes: tuple[int, ...], before: Placement | None) -> Placement:
        """Return the places for ``sizes``, computed at the first call with these sizes."""
        placement = self.known.get(sizes)
        if placement is None:
            placement = self.known[sizes] = self._placed(sizes, before)
            if len(self.known) > SHAPES_KEPT:
                self.known.popitem(last=False)
        return placement

    def _placed(self, sizes: tuple[int, ...], before: Placement | None) -> Placement:
        """Return the places for ``sizes``; the places of the last call stay while they are large enough."""
        values = self.measured(sizes)
        counts = values[: len(self.slots)]
        wanted = [n * s.layout.dtype.itemsize for n, s in zip(counts, self.slots, strict=True)]
        if before is not None and all(map(int.__le__, wanted, before.room)):
            return replace(before, sizes=sizes, values=values)
        room = wanted if before is None else [size + size // ROOM for size in wanted]
        offsets, total = arrange(self.slots, room)
        return Placement(sizes, values, room, offsets, total)

    def give(self, block: Block) -> None:
        """Return the block to the pool, for the next call of any graph."""
        self.pool.free.append(block)

    def _prepare(self, memory: torch.Tensor, placement: Placement) -> tuple[Any, ...]:
        """Return the addresses of the slots in ``memory`` and the tensors over them, packed for the program."""
        start, values = memory.data_ptr(), iter(placement.values[len(self.slots) :])
        whole = memory[: memory.numel() // 16 * 16]
        typed: dict[torch.dtype, torch.Tensor] = {}
        tensors = []
        for window in self.windows:
            dtype = self.slots[window.slot].layout.dtype
            if dtype not in typed:
                typed[dtype] = whole.view(dtype)
            shape = list(islice(values, len(window.shape)))
            stride = list(islice(values, len(window.stride)))
            offset = placement.offsets[window.slot] // dtype.itemsize + next(values)
            tensors.append(typed[dtype].as_strided(shape, stride, offset))
        return self.pack([start + offset for offset in placement.offsets], tensors)


@dataclass(eq=False)
class Sizes:
    """``sizes(values)`` returns the values of ``exprs`` for the given ``values`` of ``symbols``."""

    symbols: Sequence[str]
    exprs: Sequence[Expr]
    different: list[Expr] = field(init=False)
    """The distinct expressions, each of which is evaluated once."""
    places: list[int] = field(init=False)
    """For each of ``exprs``, its position in ``different``."""

    def __post_init__(self) -> None:
        numbers: dict[Expr, int] = {}
        self.places = [numbers.setdefault(expr, len(numbers)) for expr in self.exprs]
        self.different = list(numbers)

    def __call__(self, values: Sequence[int]) -> list[int]:
        environment = dict(zip(self.symbols, values, strict=True))
        sizes = [expr.evaluate(environment) for expr in self.different]
        return [sizes[position] for position in self.places]
