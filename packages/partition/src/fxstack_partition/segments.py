"""Places at which a forward can be cut into pieces that are each made again from little.

A place is good if few bytes are alive there. The forward is divided by the bytes that it makes, and near each
division the place with the fewest live bytes is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_partition.ops import OpKind

if TYPE_CHECKING:
    from torch.fx import Node

    from fxstack_partition.joint import JointFacts

_NOT_KEPT = (OpKind.INPUT, OpKind.CONSTANT, OpKind.SYMBOLIC)


def checkpoints(facts: JointFacts, count: int) -> frozenset[Node]:
    """Return the values alive at the ``count - 1`` places that divide the forward into ``count`` pieces."""
    order = [n for n in facts.nodes[:-1] if n in facts.forward and n.op == "call_function"]
    table = facts.storages
    made = [sum(table.sizes[s] for s in table.made[node]) for node in order]
    alive = _alive(facts, order)
    total, reached = sum(made), 0
    cumulated = []
    for size in made:
        reached += size
        cumulated.append(reached)
    found: set[Node] = set()
    for part in range(1, count):
        low, high = ((part + side) * total / count for side in (-0.5, 0.5))
        window = [i for i, bytes_so_far in enumerate(cumulated) if low <= bytes_so_far <= high]
        if window:
            place = min(window, key=lambda i: (alive[i], i))
            found.update(_values_at(facts, order, place))
    return frozenset(found)


def _last_use(order: list[Node]) -> dict[Node, int]:
    last: dict[Node, int] = {}
    for index, node in enumerate(order):
        for arg in node.all_input_nodes:
            last[arg] = index
    return last


def _alive(facts: JointFacts, order: list[Node]) -> list[int]:
    """Return the bytes alive after each node: made up to it, read after it."""
    table = facts.storages
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for index, node in enumerate(order):
        for storage in table.made[node]:
            first[storage] = index
        for storage in table.reads(node):
            last[storage] = index
    change = [0] * (len(order) + 1)
    for storage, start in first.items():
        end = last.get(storage, start)
        change[start] += table.sizes[storage]
        change[end] -= table.sizes[storage]
    alive, current = [], 0
    for delta in change[:-1]:
        current += delta
        alive.append(current)
    return alive


def _values_at(facts: JointFacts, order: list[Node], place: int) -> list[Node]:
    last = _last_use(order)
    return [
        node
        for node in order[: place + 1]
        if last.get(node, -1) > place
        and facts.kinds[node] not in _NOT_KEPT
        and not isinstance(node.meta.get("val"), tuple | list)
    ]
