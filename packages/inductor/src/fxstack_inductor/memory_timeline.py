"""The memory of a schedule, step by step: the arena, and torch's allocations beside the arena.

``memory_timeline(lower(graph))`` gives a planner of activation memory this information before compilation.
Inputs are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fxstack_inductor.ir.nodes import ExternCall, Input, Node
from fxstack_inductor.runtime.arena import PAGE
from fxstack_inductor.schedule.build import extent
from fxstack_inductor.schedule.fusion.inlining import base_of
from fxstack_inductor.schedule.lifetimes import last_uses
from fxstack_inductor.schedule.memory import place, slots, written
from fxstack_inductor.schedule.steps import KernelStep, Plan, Step, all_kernels, called_graphs
from fxstack_interchange.format.show import short_repr


@dataclass(frozen=True, slots=True, repr=False)
class MemoryTimeline:
    """The memory of one call of a compiled graph, step by step."""

    arena: int
    """Bytes of the block that is kept between calls."""
    steps: tuple[tuple[str, int], ...]
    """Name of each step, with the bytes that torch allocates in this call and that are alive during the step."""
    released: Mapping[str, int]
    """For each input that a boxed program releases: the number of steps that run before the release.

    Inputs that are held to the end are missing.
    """

    __repr__ = short_repr


def memory_timeline(plan: Plan, symbols: Mapping[str, int]) -> MemoryTimeline:
    """Return the memory of one call of ``plan``, given the values ``symbols`` of symbolic sizes."""
    inside = slots(plan)
    arena = place(tuple(inside.values()), symbols)[1] if inside else 0
    last = last_uses(plan.steps)
    outputs = (v for v in plan.program.outputs if isinstance(v, Node))
    outlives = {base_of(v) for v in (*outputs, *(m.value for m in plan.program.mutations))}
    alive: dict[Node, int] = {}
    steps = []
    for position, step in enumerate(plan.steps):
        for node in _allocated(step):
            if node not in inside:
                alive[node] = extent(node).evaluate(symbols) * node.layout.dtype.itemsize
        steps.append((_name(step), sum(alive.values())))
        for node in [n for n in alive if last.get(n, position) <= position and n not in outlives]:
            del alive[node]
    return MemoryTimeline(-(-arena // PAGE) * PAGE, tuple(steps), _released(plan, last, outlives))


def _released(plan: Plan, last: Mapping[Node, int], outlives: Iterable[Node]) -> dict[str, int]:
    """Return name of an input -> number of steps that run before the host program releases the input.

    ``last`` is the result of ``last_uses``; ``outlives`` are the tensors that are needed after the call.
    """
    if called_graphs(plan) or any(k.checked and not k.only_checks for k in all_kernels(plan)):
        return {}  # the program may run again with the same inputs
    program = plan.program
    held = {node.name for node in (*outlives, *(m.target for m in program.mutations))}
    steps = {node.name: position + 1 for node, position in last.items() if isinstance(node, Input)}
    return {name: steps.get(name, 0) for name in program.parameters if name not in held}


def _allocated(step: Step) -> Iterable[Node]:
    """Return the tensors that a step creates, whether in memory of its own or in memory that its caller provides."""
    if isinstance(step, ExternCall) and not step.alias:
        return step.outputs
    return (node for node in written(step) if not isinstance(node, Input))


def _name(step: Step) -> str:
    """Return a step's name in the timeline: its FX node; for a kernel, the node of the last stored tensor."""
    if isinstance(step, KernelStep):
        return step.stored[-1].origin if step.stored else step.kernel.name
    return step.name
