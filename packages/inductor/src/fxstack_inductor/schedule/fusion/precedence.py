"""Order constraints between units, with levels that often decide without search that no constraint exists.

The level of a unit is higher than the levels of all units that must run before it. So a search for a path
from one unit to another need not enter units at or below the level of the first unit. When groups are merged,
the levels of the units after the merged group are raised as far as necessary.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import pairwise

from fxstack_inductor.ir.nodes import Computed, ExternCall, Node
from fxstack_inductor.lower.program import HostCall
from fxstack_inductor.schedule.fusion.inlining import base_of
from fxstack_inductor.schedule.fusion.state import FusionState, Group

Call = ExternCall | HostCall


class Precedence:
    """The order of units that tensors, host values and effects require in ``fusion``."""

    def __init__(self, fusion: FusionState) -> None:
        self._fusion = fusion
        calls = [s for s in fusion.program.steps if isinstance(s, (ExternCall, HostCall))]
        self._effect_before: dict[int, ExternCall] = {}
        self._behind: dict[int, list[Group | Call]] = {}
        """Units that need a call for a reason other than a tensor, by identity of the call."""
        self._needed: dict[int, tuple[list[Node], list[Call]]] = {}
        """Tensors and other calls that a call needs, by identity of the call."""
        self._levels: dict[int, int] = {}
        """Levels of the calls, by identity."""
        self._waiting = iter(calls)
        self._next = next(self._waiting, None)
        self._reading: dict[Node, list[Call]] = {}
        effects = [c for c in calls if isinstance(c, ExternCall) and c.effect]
        # Each effect must follow the previous effect, so a chain of neighbours orders all effects.
        for one, other in pairwise(effects):
            self._effect_before[id(other)] = one
        for call in calls:
            nodes = list(dict.fromkeys(base_of(node) for node in call.reads))
            others = self._other_producers(call)
            self._needed[id(call)] = nodes, others
            for node in nodes:
                self._reading.setdefault(node, []).append(call)
            for before in others:
                self._behind.setdefault(id(before), []).append(call)

    # --- who needs whom --------------------------------------------------------------------------

    def producers(self, unit: Group | Call) -> list[Group | Call]:
        """Return the units that must run before ``unit``, each once."""
        if isinstance(unit, (ExternCall, HostCall)):
            nodes, others = self._needed[id(unit)]
        else:
            nodes = [r.node for placed in unit.placed for r in self._fusion.reads(placed)]
            others = self._fusion.sizes.of_kernel(unit.placed)
        units = {id(u): u for node in nodes if (u := self._fusion.unit.get(node)) is not None}
        units |= {id(u): u for u in others}
        units.pop(id(unit), None)
        return list(units.values())

    def _other_producers(self, call: Call) -> list[Call]:
        """Return the calls that compute numbers for ``call``, and the call with the previous effect."""
        before = self._effect_before.get(id(call))
        return [*self._fusion.sizes.of_call(call), *([] if before is None else [before])]

    def _consumers(self, unit: Group | Call) -> Iterator[Group | Call]:
        """Yield the units that must run after ``unit``."""
        if isinstance(unit, (ExternCall, HostCall)):
            yield from self._behind.get(id(unit), ())
            nodes: list[Node] = list(unit.outputs) if isinstance(unit, ExternCall) else []
        else:
            nodes = list(unit.placed)
        for node in nodes:
            for reader in self._fusion.readers.get(node, ()):
                yield self._fusion.current(reader)
            yield from self._reading.get(node, ())

    # --- levels ----------------------------------------------------------------------------------

    def level(self, unit: Group | Call) -> int:
        """Return the level of a unit; KeyError for a call without a level."""
        if isinstance(unit, (ExternCall, HostCall)):
            return self._levels[id(unit)]
        return unit.level

    def _below(self, unit: Group | Call, limit: int) -> bool:
        """Whether ``unit`` has a level already, and the level is below ``limit``."""
        if isinstance(unit, (ExternCall, HostCall)):
            return self._levels.get(id(unit), limit) < limit
        return unit.level < limit

    def above_producers(self, unit: Group | Call) -> int:
        """Return the least level that is higher than those of all units before ``unit``."""
        return 1 + max((self.level(u) for u in self.producers(unit)), default=-1)

    def reach(self, position: int) -> None:
        """Assign levels to the calls before step ``position`` of the program, when ``fuse`` comes to that step."""
        while (call := self._next) is not None and self._fusion.position[id(call)] < position:
            self._levels[id(call)] = self.above_producers(call)
            self._next = next(self._waiting, None)

    def place(self, node: Computed, group: Group) -> None:
        """Record that ``node`` is computed in ``group`` and needs the tensors that it reads."""
        for read in self._fusion.reads(node):
            self._fusion.readers.setdefault(read.node, []).append(group)
        for call in self._fusion.sizes.of_kernel([node]):
            self._behind.setdefault(id(call), []).append(group)

    def raise_behind(self, unit: Group) -> None:
        """Raise the levels of the units that must run after ``unit``, whose level a merge has raised."""
        risen: list[tuple[int, int, Group | Call]] = [(unit.level, 0, unit)]
        # Lowest levels first: a unit is then raised once in most cases, after all of its producers.
        while risen:
            level, _, unit_ = heapq.heappop(risen)
            if level < self.level(unit_):
                continue  # ``unit_`` was raised further meanwhile
            for behind in self._consumers(unit_):
                if isinstance(behind, (ExternCall, HostCall)):
                    if self._levels.get(id(behind), level + 1) > level:
                        continue
                    self._levels[id(behind)] = level + 1
                elif behind is unit_ or behind.level > level:
                    continue
                else:
                    behind.level = level + 1
                heapq.heappush(risen, (level + 1, id(behind), behind))

    def find_between(self, merged: Group, left: Group, right: Group) -> Group | Call | None:
        """Return a unit that must run between the two groups: after a tensor of one, and before a tensor of the other.

        Return None if no unit outside of both groups must run between them.

        Two searches, from both ends, alternate, because either search may have to visit most of the graph.
        The first search to finish decides.
        """
        both_groups = {id(left), id(right)}
        before = {id(u): u for u in self.producers(merged) if id(u) not in both_groups}
        after = {id(u): u for g in (left, right) for u in self._consumers(g) if id(u) not in both_groups}
        up = self._forward(after.values(), before, max(left.level, right.level))
        down = self._backward(before.values(), both_groups, min(left.level, right.level))
        return next((found for both in zip(up, down, strict=False) for found in both if found), None)

    def _backward(
        self, start: Iterable[Group | Call], goal: Container[int], limit: int
    ) -> Iterator[Group | Call | None]:
        """Yield a found unit, or None for each other visited unit.

        The search goes from ``start`` through producers of a level above ``limit``, to units that need a unit
        in ``goal``.
        """
        for unit in _search(start, lambda unit: self.level(unit) > limit, self.producers):
            yield unit if any(id(u) in goal for u in self.producers(unit)) else None

    def _forward(
        self, start: Iterable[Group | Call], goal: Container[int], limit: int
    ) -> Iterator[Group | Call | None]:
        """Yield a found unit, or None for each other visited unit.

        The search goes from ``start`` through consumers of a level below ``limit``, to units in ``goal``.
        """
        for unit in _search(start, lambda unit: self._below(unit, limit), self._consumers):
            yield unit if id(unit) in goal else None


def _search(
    start: Iterable[Group | Call],
    is_wanted: Callable[[Group | Call], bool],
    neighbours: Callable[[Group | Call], Iterable[Group | Call]],
) -> Iterator[Group | Call]:
    """Yield the units that ``is_wanted`` accepts and that are reached from ``start`` through accepted units.

    Each unit is yielded once, depth first.
    """
    stack, seen = list(start), set[int]()
    while stack:
        unit = stack.pop()
        if id(unit) not in seen and is_wanted(unit):
            seen.add(id(unit))
            yield unit
            stack += neighbours(unit)
