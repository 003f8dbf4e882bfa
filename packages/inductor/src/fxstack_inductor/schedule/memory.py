"""Place tensors in the arena: buffers whose lifetimes do not overlap share memory.

The arena is one block of memory that a call borrows (``runtime.arena``). It holds every intermediate tensor
that a kernel or an ``out=`` variant writes and that does not outlive the call. Placement is greedy: the
largest tensor comes first, and each tensor gets the lowest offset that is free during the tensor's lifetime
(Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from math import inf
from operator import attrgetter

from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Computed, Extern, ExternCall, Layout, Node
from fxstack_inductor.lower.nested.calls import NestedCall
from fxstack_inductor.lower.registry import find_overload
from fxstack_inductor.schedule.build import extent
from fxstack_inductor.schedule.fusion.inlining import base_of
from fxstack_inductor.schedule.outvariants import out_variant
from fxstack_inductor.schedule.steps import KernelStep, Plan, Step

ALIGNMENT = 64
"""Bytes to which every tensor in the arena is aligned: a cache line, and the widest vector."""
ADDMM = find_overload("addmm.default")
LARGE = 256
"""A tensor is large if it has at least one of this many bytes of the arena."""
SMALL, MANY = 4096, 256
"""If there are many tensors of at most ``SMALL`` bytes, they do not fill gaps between other tensors."""
SEE_STORAGE = frozenset(
    find_overload(f"{name}.default")
    for name in (
        "as_strided",
        "as_strided_copy",
        "as_strided_scatter",
        "diagonal_scatter",
        "select_scatter",
        "slice_scatter",
    )
)
"""Operators that address from the start of an argument's storage, or copy all of the storage."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor in the arena, alive from step ``first`` to step ``last`` (positions in ``Plan.steps``)."""

    name: str
    layout: Layout
    elements: Expr
    """The number of memory elements from the first to the last."""
    first: int
    last: int
    group: str = ""
    """Tensors of one group have equal layouts and share a block: each is computed in place from the previous tensor."""


def used(step: Step) -> Iterable[Node]:
    """Yield the tensors whose memory ``step`` uses."""
    if isinstance(step, KernelStep):
        yield from step.stored
        yield from step.reads
        return
    yield from (base_of(node) for node in step.reads)
    if isinstance(step, NestedCall):
        yield from step.written
    elif isinstance(step, ExternCall):
        yield from step.outputs


def written(step: Step) -> Iterable[Node]:
    """Yield the tensors that ``step`` writes into memory provided by the caller."""
    if isinstance(step, KernelStep):
        yield from step.stored
    elif isinstance(step, NestedCall):
        yield from step.written
    elif isinstance(step, ExternCall) and out_variant(step) is not None:
        yield step.outputs[0]


def slots(plan: Plan) -> dict[Node, Slot]:
    """Map each tensor in the arena to its slot."""
    program = plan.program
    outside = {base_of(v) for v in program.outputs if isinstance(v, Node)}
    outside |= {base_of(m.value) for m in program.mutations}
    first: dict[Node, int] = {}
    last: dict[Node, int] = {}
    for position, step in enumerate(plan.steps):
        for node in used(step):
            last[node] = position
        for node in written(step):
            first[node] = position
        if isinstance(step, ExternCall) and (step.alias or step.target in SEE_STORAGE):
            # The result may be a view of an argument, and a view may outlive the call.
            outside |= {base_of(node) for node in step.reads}
    group = _groups(plan, {node: last[node] for node in first if node not in outside})
    found = {
        node: Slot(node.name, node.layout, extent(node), start, last[node], group.get(node, ""))
        for node, start in first.items()
        if node not in outside
    }
    large = inf if plan.keeps_memory else _bound_of_large([*found.values()])
    return {node: slot for node, slot in found.items() if slot.group or bytes_of(node) < large}


def bytes_of(node: Node) -> int:
    """Return the bytes of a tensor; 0 for symbolic sizes."""
    size: int = node.dtype.itemsize
    return (extent(node).as_int() or 0) * size


def _bound_of_large(inside: Sequence[Slot]) -> float:
    """Return the bytes from which tensors are allocated by themselves, and freed after their last use.

    The arena is there during the whole step: in training it adds to the saved tensors and to the gradients, although the
    step seldom needs it most when these are most. The gradient of the logits, for example, is used when no other is made.
    """
    lives = ((s.first, s.last, (s.elements.as_int() or 0) * s.layout.dtype.itemsize) for s in inside)
    return max(bytes_alive(lives), default=0) / LARGE


def bytes_alive(lives: Iterable[tuple[int, int, int]]) -> list[int]:
    """Return the bytes in memory at each step, given the first and the last step of each tensor and its bytes."""
    change: defaultdict[int, int] = defaultdict(int)
    for first, last, size in lives:
        change[first] += size
        change[last + 1] -= size
    return list(accumulate(change[step] for step in range(max(change, default=0))))


def added_to(step: Step) -> Node | None:
    """Return the tensor that ``step`` may overwrite with its result: ``addmm``'s addend of equal layout; else None."""
    if not isinstance(step, ExternCall) or step.target is not ADDMM or out_variant(step) is None:
        return None
    base, *factors = step.args
    if not isinstance(base, (Extern, Computed)) or base.layout != step.outputs[0].layout:
        return None
    return None if base in {base_of(factor) for factor in factors} else base


def _groups(plan: Plan, last: Mapping[Node, int]) -> dict[Node, str]:
    """Return the group names of tensors computed in place; ``last`` maps arena tensors to their last steps."""
    groups: dict[Node, str] = {}
    # The addend must die at this step: another reader would see the sum in place of the addend.
    for position, step in enumerate(plan.steps):
        base = added_to(step)
        if base is None or not isinstance(step, ExternCall) or last.get(base) != position:
            continue
        result = step.outputs[0]
        if result in last:
            groups[result] = groups.setdefault(base, base.name)
    return groups


def place(chosen: Sequence[Slot], symbols: Mapping[str, int]) -> tuple[list[int], int]:
    """Return (the slots' byte offsets, the arena's size in bytes), for given symbol values."""
    return arrange(chosen, [s.elements.evaluate(symbols) * s.layout.dtype.itemsize for s in chosen])


def arrange(chosen: Sequence[Slot], sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return (the slots' byte offsets, the arena's size in bytes), for given slot sizes in bytes."""
    blocks = _blocks(chosen, [_aligned(size) for size in sizes])
    timeline = _Timeline(max((p.last for p in blocks), default=0) + 1)
    small = [block for block in blocks if block.size <= SMALL]
    apart = small if len(small) > MANY else []
    large = blocks if not apart else [block for block in blocks if block.size > SMALL]
    # Large blocks first: small blocks fit into the gaps that remain, and not the other way round.
    for block in sorted(large, key=lambda p: (-p.size, p.first)):
        block.offset = _lowest_gap(block, timeline.overlapping(block))
        timeline.add(block)
    top = max((block.offset + block.size for block in large), default=0)
    for _, equal in groupby(sorted(apart, key=lambda p: (p.size, p.first)), key=lambda p: p.size):
        top = _stack(equal, top)
    offsets = [0] * len(chosen)
    for block in blocks:
        for k in block.slots:
            offsets[k] = block.offset
    return offsets, max((p.offset + p.size for p in blocks), default=0)


@dataclass(slots=True)
class _Block:
    """A range of the arena that several slots use in turn."""

    slots: list[int]
    """Positions of the slots."""
    size: int
    """Bytes, a multiple of ``ALIGNMENT``."""
    first: int
    last: int
    offset: int = 0
    """The first byte, once the block is placed."""


def _blocks(chosen: Sequence[Slot], sizes: Sequence[int]) -> list[_Block]:
    """Return the blocks of the slots; the lifetime of a block covers the lifetimes of its slots."""
    blocks: dict[str | int, _Block] = {}
    for k, slot in enumerate(chosen):
        block = blocks.setdefault(slot.group or k, _Block([], sizes[k], slot.first, slot.last))
        block.slots.append(k)
        block.first, block.last = min(block.first, slot.first), max(block.last, slot.last)
    return list(blocks.values())


class _Timeline:
    """Blocks by lifetime; finds the blocks alive during another block without a scan of all blocks.

    ``alive`` is a segment tree over the steps: a block is stored at the few tree nodes whose ranges its
    lifetime covers.
    """

    def __init__(self, steps: int) -> None:
        self.leaves = 1 << (steps - 1).bit_length()
        self.alive: dict[int, list[_Block]] = defaultdict(list)
        self.starts: list[_Block] = []

    def add(self, block: _Block) -> None:
        """Record ``block``, whose lifetime covers O(log steps) nodes of the tree."""
        insort(self.starts, block, key=_first)
        low, high = block.first + self.leaves, block.last + self.leaves + 1
        while low < high:
            if low & 1:
                self.alive[low].append(block)
                low += 1
            if high & 1:
                high -= 1
                self.alive[high].append(block)
            low, high = low >> 1, high >> 1

    def overlapping(self, block: _Block) -> list[_Block]:
        """Return the blocks alive at some step of ``block``'s lifetime, lowest offset first."""
        after = bisect_right(self.starts, block.first, key=_first)
        blocks = self.starts[after : bisect_right(self.starts, block.last, key=_first)]
        node = block.first + self.leaves
        while node:
            blocks += self.alive.get(node, ())
            node >>= 1
        return sorted(blocks, key=_offset)


def _stack(blocks: Iterable[_Block], top: int) -> int:
    """Place blocks of one size, the earliest first, at places of blocks that are no longer used or at ``top``; return the end.

    A search for gaps between thousands of numbers, one for each parameter of an optimizer, would take quadratic time.
    """
    free: list[int] = []
    used_until: list[tuple[int, int]] = []
    for block in blocks:
        while used_until and used_until[0][0] < block.first:
            heapq.heappush(free, heapq.heappop(used_until)[1])
        if free:
            block.offset = heapq.heappop(free)
        else:
            block.offset, top = top, top + block.size
        heapq.heappush(used_until, (block.last, block.offset))
    return top


_first, _offset = attrgetter("first"), attrgetter("offset")


def _lowest_gap(block: _Block, overlapping: Sequence[_Block]) -> int:
    """Return the lowest offset at which ``block`` fits between the blocks ``overlapping``, sorted by offset."""
    position = 0
    for other in overlapping:
        if other.offset - position >= block.size:
            break
        position = max(position, other.offset + other.size)
    return position


def _aligned(size: int) -> int:
    """Return ``size`` rounded up to a multiple of ``ALIGNMENT``."""
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
