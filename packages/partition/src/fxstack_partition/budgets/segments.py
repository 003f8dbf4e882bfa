"""Checkpoints: positions that divide a forward into pieces which can be recomputed from few saved values.

The forward is divided into pieces of equal allocated bytes. Near each division the position with the fewest live
bytes becomes the checkpoint.
"""

from __future__ import annotations

from itertools import accumulate

from fxstack_partition.joint.index_graph import IndexGraph
from fxstack_partition.joint.ops import OpKind

_NOT_SAVED = (OpKind.INPUT, OpKind.CONSTANT, OpKind.SYMBOLIC)


class Segments:
    """The forward in order, with the bytes allocated up to each node and the bytes alive after it."""

    def __init__(self, graph: IndexGraph) -> None:
        self._graph = graph
        self._order = [p for p in range(graph.count) if graph.forward[p] and not graph.is_input[p]]
        self._allocated_so_far = list(accumulate(graph.allocated_bytes[index] for index in self._order))
        self._last = {arg: index for index in self._order for arg in graph.args[index]}
        self._alive = self._alive_after()

    def checkpoints(self, count: int) -> frozenset[int]:
        """Return the values alive at the ``count - 1`` positions between ``count`` pieces of the forward."""
        total = self._allocated_so_far[-1] if self._allocated_so_far else 0
        values: set[int] = set()
        for part in range(1, count):
            low, high = ((part + side) * total / count for side in (-0.5, 0.5))
            window = [i for i, so_far in enumerate(self._allocated_so_far) if low <= so_far <= high]
            if window:
                values.update(self._values_at(min(window, key=lambda i: (self._alive[i], i))))
        return frozenset(values)

    def _alive_after(self) -> list[int]:
        """Return the bytes alive after each node: memory that was allocated up to the node and is read after
        the node.
        """
        graph = self._graph
        last = {s: i for i, index in enumerate(self._order) for s in graph.touched[index]}
        change = [0] * (len(self._order) + 1)
        for rank, index in enumerate(self._order):
            change[rank] += graph.allocated_bytes[index]
        allocated = {s for index in self._order for s in graph.allocated[index]}
        for storage, rank in last.items():
            change[rank] -= graph.sizes[storage] if storage in allocated else 0
        return list(accumulate(change[:-1]))

    def _values_at(self, rank: int) -> list[int]:
        """Return the savable values that are alive at position ``rank`` of the order, to save at a border of pieces."""
        graph, index = self._graph, self._order[rank]
        nodes, kinds = graph.nodes, graph.facts.kinds
        return [
            p
            for p in self._order[: rank + 1]
            if self._last.get(p, -1) > index
            and kinds[nodes[p]] not in _NOT_SAVED
            and p not in graph.multi_output
        ]
