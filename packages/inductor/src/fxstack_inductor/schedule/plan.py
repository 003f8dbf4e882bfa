"""The schedule of a whole graph: kernels and calls in execution order."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from fxstack_inductor.failures import about
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import Computed, ExternCall, Node
from fxstack_inductor.ir.verify import verify
from fxstack_inductor.lower.attention import AttentionCall
from fxstack_inductor.lower.program import HostCall, Mutation, Program
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.schedule.attention import attention_step
from fxstack_inductor.schedule.build import build_kernel
from fxstack_inductor.schedule.fusion.groups import Fusion, fuse
from fxstack_inductor.schedule.fusion.inlining import choose_inlined, usage
from fxstack_inductor.schedule.fusion.inplace import share_memory, write_in_place
from fxstack_inductor.schedule.fusion.loop_matching import Refusal
from fxstack_inductor.schedule.fusion.state import Group
from fxstack_inductor.schedule.loops import normalise
from fxstack_inductor.schedule.steps import KernelStep, Step


@dataclass(frozen=True)
class Plan:
    program: Program
    steps: tuple[Step, ...]
    refusals: tuple[tuple[str, str, Refusal], ...]
    copies: tuple[Mutation, ...]
    """Mutations that no kernel performs; the host copies them."""


def plan(program: Program, options: InductorOptions) -> Plan:
    """Fuse the program's tensors, order the units, and build the kernels."""
    found = usage(program)
    inlined = choose_inlined(found)
    groups, fusion = fuse(program, found, inlined, options)
    units = _ordered(fusion, groups)
    steps: list[Step] = []
    for unit in units:
        if isinstance(unit, AttentionCall):
            steps.append(attention_step(unit))
            continue
        if not isinstance(unit, Group):
            steps.append(unit)
            continue
        unit.placed = {n: unit.placed[n] for n in sorted(unit.placed, key=lambda n: fusion.position[id(n)])}
        stored = _stored(fusion, unit)
        with about(*dict.fromkeys(node.origin for node in unit.placed)):
            kernel = _kernel(f"kernel_{len(steps)}", unit, stored, inlined, options)
        written = {node.name for node in stored}
        by_name = _nodes_by_name(fusion, unit)
        reads = tuple(by_name[b.name] for b in kernel.buffers if b.name not in written)
        steps.append(KernelStep(kernel, tuple(stored), reads))
    made, copies = write_in_place(program, share_memory(steps))
    return Plan(program, tuple(made), tuple(fusion.refusals), copies)


def _kernel(
    name: str, group: Group, stored: list[Computed], inlined: set[Node], options: InductorOptions
) -> Kernel:
    kernel = build_kernel(name, group, stored, inlined)
    if options.verify:
        verify(kernel, "building")
    kernel = normalise(kernel)
    if options.verify:
        verify(kernel, "loop passes")
    return kernel


def _nodes_by_name(fusion: Fusion, group: Group) -> dict[str, Node]:
    return {read.node.name: read.node for node in group.placed for read in fusion.reads(node)}


def _stored(fusion: Fusion, group: Group) -> list[Computed]:
    """Return the group's tensors that are read outside the group, in the graph's order."""
    needed = {n for n in group.placed if n in fusion.usage.required}
    for node in group.placed:
        if node in needed:
            continue
        readers = fusion.readers.get(node, [])
        if any(not _inside(fusion, reader, group) for reader in readers):
            needed.add(node)
    return sorted(needed, key=lambda n: fusion.position[id(n)])


def _inside(fusion: Fusion, reader: Group, group: Group) -> bool:
    return fusion.unit[next(iter(reader.placed))] is group


def _ordered(fusion: Fusion, groups: list[Group]) -> list[Group | ExternCall | HostCall]:
    """Return a topological order, earliest position in the graph first; effects keep their order."""
    calls = [s for s in fusion.program.steps if isinstance(s, (ExternCall, HostCall))]
    units: list[Group | ExternCall | HostCall] = [*groups, *calls]
    waiting = {id(u): {id(other) for other in fusion.precedence.producers(u)} for u in units}
    followers: dict[int, list[int]] = {}
    for unit in units:
        for dependency in waiting[id(unit)]:
            followers.setdefault(dependency, []).append(id(unit))
    by_id = {id(u): u for u in units}
    rank = {id(u): (*_rank(fusion, u), n) for n, u in enumerate(units)}
    ready = [(rank[key], key) for key, needs in waiting.items() if not needs]
    heapq.heapify(ready)
    result: list[Group | ExternCall | HostCall] = []
    while ready:
        _, key = heapq.heappop(ready)
        result.append(by_id[key])
        for follower in followers.get(key, ()):
            waiting[follower].discard(key)
            if not waiting[follower]:
                heapq.heappush(ready, (rank[follower], follower))
    if len(result) != len(units):
        raise AssertionError("fusion made a cycle")
    return result


def _rank(fusion: Fusion, unit: Group | ExternCall | HostCall) -> tuple[int, int]:
    """Return the rank. Host calls run early: a failing assertion must find inputs unwritten."""
    if isinstance(unit, HostCall):
        return (0, fusion.position[id(unit)])
    return (1, unit.last if isinstance(unit, Group) else fusion.position[id(unit)])


__all__ = ["KernelStep", "Plan", "Step", "plan"]
