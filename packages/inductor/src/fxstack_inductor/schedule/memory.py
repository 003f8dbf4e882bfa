"""Which tensors live in the arena, and where: buffers whose lives do not overlap share memory.

The arena is one block of memory that a call borrows (``runtime.arena``). It holds every intermediate tensor that a kernel
or an ``out=`` variant writes and that does not outlive the call. Placing is greedy, largest first, each at the lowest
offset that is free during its life (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxstack_inductor.ir.nodes import ExternCall, Node
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


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor of the arena, alive from step ``first`` to step ``last``."""

    name: str
    layout: Layout
    elements: Expr
    first: int
    last: int


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
    return {
        node: Slot(node.name, node.layout, extent(node), start, last[node])
        for node, start in first.items()
        if node not in outside
    }


def place(chosen: Sequence[Slot], symbols: Mapping[str, int]) -> tuple[list[int], int]:
    """Offsets in bytes of the slots, and the size of the arena, for given sizes."""
    sizes = [_aligned(s.elements.evaluate(symbols) * s.layout.dtype.itemsize) for s in chosen]
    offsets = [0] * len(chosen)
    placed: list[int] = []
    for k in sorted(range(len(chosen)), key=lambda k: (-sizes[k], chosen[k].first)):
        offsets[k] = _lowest_gap(chosen, sizes, offsets, placed, k)
        placed.append(k)
        placed.sort(key=offsets.__getitem__)
    total = max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0)
    return offsets, total


def _lowest_gap(
    chosen: Sequence[Slot], sizes: list[int], offsets: list[int], placed: list[int], k: int
) -> int:
    own = chosen[k]
    position = 0
    for other in placed:
        slot = chosen[other]
        if slot.last < own.first or own.last < slot.first:
            continue
        if offsets[other] - position >= sizes[k]:
            break
        position = max(position, offsets[other] + sizes[other])
    return position


def _aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


__all__ = ["Slot", "place", "slots", "used", "written"]
