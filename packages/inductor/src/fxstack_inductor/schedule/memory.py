"""Which tensors live in the arena, and where: buffers whose lives do not overlap share memory.

The arena is one block of memory that a call borrows (``runtime.arena``). It holds every intermediate tensor that a kernel
or an ``out=`` variant writes and that does not outlive the call. Placing is greedy, largest first, each at the lowest
offset that is free during its life (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxstack_inductor.ir.nodes import Computed, Extern, ExternCall, Node
from fxstack_inductor.lower.registry import find_overload
from fxstack_inductor.schedule.build import extent
from fxstack_inductor.schedule.outvariants import out_variant
from fxstack_inductor.schedule.plan import KernelStep
from fxstack_inductor.schedule.realise import base_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fxstack_inductor.ir.expr import Expr
    from fxstack_inductor.ir.nodes import Layout
    from fxstack_inductor.schedule.plan import Plan, Step

ALIGNMENT = 64
ADDMM = find_overload("addmm.default")


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor of the arena, alive from step ``first`` to step ``last``.

    Tensors of equal layout in the same ``group`` are in the same place: each was computed in place from the one before.
    """

    name: str
    layout: Layout
    elements: Expr
    first: int
    last: int
    group: str = ""


def used(step: Step) -> Iterable[Node]:
    """The memory that a step touches."""
    if isinstance(step, KernelStep):
        yield from step.stored
        yield from step.reads
        return
    yield from (base_of(node) for node in step.reads)
    if isinstance(step, ExternCall):
        yield from step.outputs


def written(step: Step) -> Iterable[Node]:
    """The tensors that a step makes in memory that the caller provides."""
    if isinstance(step, KernelStep):
        yield from step.stored
    elif isinstance(step, ExternCall) and out_variant(step) is not None:
        yield step.outputs[0]


def slots(plan: Plan) -> dict[Node, Slot]:
    """The tensors that live in the arena."""
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
        if isinstance(step, ExternCall) and step.alias:
            # The result may be a view of an argument, and live on.
            outside |= {base_of(node) for node in step.reads}
    group = _groups(plan, {node: last[node] for node in first if node not in outside})
    return {
        node: Slot(node.name, node.layout, extent(node), start, last[node], group.get(node, ""))
        for node, start in first.items()
        if node not in outside
    }


def added_to(step: Step) -> Node | None:
    """The tensor that ``step`` may compute its result in: ``addmm`` adds to one that has the result's layout."""
    if not isinstance(step, ExternCall) or step.target is not ADDMM or out_variant(step) is None:
        return None
    base, *factors = step.args
    if not isinstance(base, (Extern, Computed)) or base.layout != step.outputs[0].layout:
        return None
    return None if base in {base_of(factor) for factor in factors} else base


def _groups(plan: Plan, last: Mapping[Node, int]) -> dict[Node, str]:
    """Names of places for the tensors that are computed in place; ``last`` has the arena's tensors and their last steps."""
    found: dict[Node, str] = {}
    for position, step in enumerate(plan.steps):
        base = added_to(step)
        if base is None or not isinstance(step, ExternCall) or last.get(base) != position:
            continue
        result = step.outputs[0]
        if result in last:
            found[result] = found.setdefault(base, base.name)
    return found


def place(chosen: Sequence[Slot], symbols: Mapping[str, int]) -> tuple[list[int], int]:
    """Offsets in bytes of the slots, and the size of the arena, for given sizes."""
    return arrange(chosen, [s.elements.evaluate(symbols) * s.layout.dtype.itemsize for s in chosen])


def arrange(chosen: Sequence[Slot], sizes: Sequence[int]) -> tuple[list[int], int]:
    """The same for slots of so many bytes."""
    places = _places(chosen, [_aligned(size) for size in sizes])
    placed: list[_Place] = []
    for own in sorted(places, key=lambda p: (-p.size, p.first)):
        own.offset = _lowest_gap(own, placed)
        placed.append(own)
        placed.sort(key=lambda p: p.offset)
    offsets = [0] * len(chosen)
    for own in places:
        for k in own.slots:
            offsets[k] = own.offset
    return offsets, max((p.offset + p.size for p in places), default=0)


@dataclass(slots=True)
class _Place:
    """Memory for slots that share it in turn."""

    slots: list[int]
    size: int
    first: int
    last: int
    offset: int = 0


def _places(chosen: Sequence[Slot], sizes: Sequence[int]) -> list[_Place]:
    found: dict[str | int, _Place] = {}
    for k, slot in enumerate(chosen):
        own = found.setdefault(slot.group or k, _Place([], sizes[k], slot.first, slot.last))
        own.slots.append(k)
        own.first, own.last = min(own.first, slot.first), max(own.last, slot.last)
    return list(found.values())


def _lowest_gap(own: _Place, placed: Sequence[_Place]) -> int:
    position = 0
    for other in placed:
        if other.last < own.first or own.last < other.first:
            continue
        if other.offset - position >= own.size:
            break
        position = max(position, other.offset + other.size)
    return position


def _aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


__all__ = ["Slot", "added_to", "arrange", "place", "slots", "used", "written"]
