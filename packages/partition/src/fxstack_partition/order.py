"""The order of the backward's nodes, and how many bytes are alive at once under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.fx import Node

from fxstack_partition.cost import SizeModel
from fxstack_partition.ops import OpKind, is_view
from fxstack_partition.options import PartitionOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fxstack_partition.joint import JointFacts


def demand_order(roots: Iterable[Node], needed: frozenset[Node]) -> tuple[Node, ...]:
    """Order ``needed`` so that each node comes just before the first that uses it.

    ``roots`` are visited in the given order; values computed again therefore appear as late as possible.
    """
    done: set[Node] = set()
    order: list[Node] = []
    for root in roots:
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if node in done or node not in needed:
                continue
            if ready:
                done.add(node)
                order.append(node)
                continue
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.all_input_nodes))
    return tuple(order)


def peak_bytes(
    order: Sequence[Node],
    held: Iterable[Node],
    kept: Iterable[Node],
    size: Callable[[Node], int],
) -> int:
    """Simulate running ``order`` and return the largest number of bytes alive at once.

    ``held`` are alive at the start (saved values, tangents) and released after their last use; ``kept`` stay
    alive to the end (gradients). A view costs nothing and keeps its base alive.
    """
    root: dict[Node, Node] = {}
    last: dict[Node, int] = {}
    for index, node in enumerate(order):
        base = node.all_input_nodes[0] if is_view(node) else node
        root[node] = root.get(base, base)
        for arg in node.all_input_nodes:
            last[root.get(arg, arg)] = index
    keep = {root.get(node, node) for node in kept}
    dying: dict[int, list[Node]] = {}
    for node, index in last.items():
        if node not in keep:
            dying.setdefault(index, []).append(node)
    alive = set(held)
    current = peak = sum(size(node) for node in alive)
    for index, node in enumerate(order):
        if root[node] is node and node not in alive:
            alive.add(node)
            current += size(node)
        peak = max(peak, current)
        unused = [node] if node not in last and node not in keep and root[node] is node else []
        for dead in (*dying.get(index, ()), *unused):
            if dead in alive:
                alive.remove(dead)
                current -= size(dead)
    return peak


def choose_order(
    facts: JointFacts, needed: frozenset[Node], handed: Sequence[Node]
) -> tuple[Node, ...]:
    """Order the backward: the joint graph's own order with recomputation as late as possible, or by gradient.

    Of the candidates the one with the lowest simulated peak is taken; the first on a tie.
    """
    own = [n for n in facts.nodes[:-1] if n in needed and n in facts.backward]
    gradients = [value for value in facts.gradients if isinstance(value, Node)]
    sizes = SizeModel(facts.graph, PartitionOptions())
    known: dict[Node, int] = {}

    def size(node: Node) -> int:
        if node not in known:
            known[node] = sizes.value_bytes(node.meta.get("val"))
        return known[node]

    held = (*handed, *facts.tangents)
    candidates = [demand_order((*own, *gradients), needed)]
    if not any(facts.kinds[node] in (OpKind.RANDOM, OpKind.EFFECT) for node in own):
        candidates.append(demand_order(gradients, needed))
        candidates.append(demand_order(reversed(gradients), needed))
    return min(candidates, key=lambda order: peak_bytes(order, held, gradients, size))
