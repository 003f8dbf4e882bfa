"""Order groups of tensors and calls by their dependencies."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from fxstack_inductor.lower.program import HostCall
from fxstack_inductor.schedule.fusion.groups import Fusion
from fxstack_inductor.schedule.fusion.inlining import is_range_call
from fxstack_inductor.schedule.fusion.state import Group, Unit


def in_order(fusion: Fusion, units: Sequence[Unit]) -> list[Unit]:
    """Return a topological order, earliest position in the graph first; effects keep their order."""
    waiting = {id(u): {id(other) for other in fusion.precedence.producers(u)} for u in units}
    followers: dict[int, list[int]] = {}
    for unit in units:
        for dependency in waiting[id(unit)]:
            followers.setdefault(dependency, []).append(id(unit))
    by_id = {id(u): u for u in units}
    # The position in the list breaks ties, so that equal graphs give equal programs.
    rank = {id(u): (*_rank(fusion, u), n) for n, u in enumerate(units)}
    ready = [(rank[key], key) for key, needs in waiting.items() if not needs]
    heapq.heapify(ready)
    result: list[Unit] = []
    while ready:
        _, key = heapq.heappop(ready)
        result.append(by_id[key])
        for follower in followers.get(key, ()):
            waiting[follower].discard(key)
            if not waiting[follower]:
                heapq.heappush(ready, (rank[follower], follower))
    # Precedence refuses merges that would close a cycle; a cycle here would drop units silently.
    if len(result) != len(units):
        raise AssertionError("fusion made a cycle")
    return result


def _position(fusion: Fusion, group: Group) -> int:
    """Return the position of a group's last tensor; of one that reads nothing, that of its first reader if that is later.

    Zeros to which a scatter adds need no memory before.
    """
    if any(node.reads for node in group.placed):
        return group.last
    readers = [fusion.position[id(r)] for n in group.placed for r in fusion.usage.readers.get(n, ())]
    return max(group.last, min(readers, default=0) - 1)


def _rank(fusion: Fusion, unit: Unit) -> tuple[int, int]:
    """Return (section, position), by which ``in_order`` prefers units; host calls have section -1.

    They run early, because a failing assertion must find inputs unwritten. All other units stay in the
    profiler range that they are in.
    """
    if isinstance(unit, HostCall) and not is_range_call(unit):
        return (-1, fusion.position[id(unit)])
    if isinstance(unit, Group):
        return (fusion.usage.section(next(iter(unit.placed))), _position(fusion, unit))
    return (fusion.usage.section(unit), fusion.position[id(unit)])
