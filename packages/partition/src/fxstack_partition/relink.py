"""Choices between choices: values that one saves and another computes again are added one by one.

A set of saved values stays valid when more are saved. Between a choice with a low peak and one with little recomputation
lies a path of such sets; the values that spare most seconds for their bytes come first (the greedy of the fractional
knapsack; path relinking: Glover, 1997).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_partition.extract import forward_closure, make_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.fx import Node

    from fxstack_partition.joint import JointFacts
    from fxstack_partition.work import WorkModel

Saved = tuple["Node", ...]


def paths(
    facts: JointFacts, costs: WorkModel, pairs: list[tuple[Saved, Saved]], allowance: int
) -> Iterator[Saved]:
    """Yield sets between each pair of (few saved, many saved), ``allowance`` of them in all."""
    each = max(1, allowance // max(1, len(pairs)))
    for few, many in pairs:
        extra = _by_gain(facts, costs, few, many)
        count = min(each, len(extra) - 1)
        for step in range(1, count + 1):
            taken = extra[: step * len(extra) // (count + 1)]
            yield tuple(sorted({*few, *taken}, key=facts.position.__getitem__))


def _by_gain(facts: JointFacts, costs: WorkModel, few: Saved, many: Saved) -> list[Node]:
    """Return what ``many`` has beyond ``few``, most spared seconds for each byte first."""
    again = make_plan(facts, few).repeated(facts)
    table = facts.storages
    known = set(few)
    gains: dict[Node, float] = {}
    for node in many:
        if node not in known:
            # What only this value needs among the recomputed: the chain that ends in it.
            chain = forward_closure(facts, (node,)) if node not in again else _chain(node, again)
            seconds = costs.seconds(chain & again)
            size = sum(table.sizes[s] for s in table.of[node])
            gains[node] = seconds / (size + 1)
    return sorted(gains, key=lambda node: (-gains[node], facts.position[node]))


def _chain(node: Node, again: frozenset[Node]) -> set[Node]:
    """Return ``node`` and the recomputed values before it that nothing else needs."""
    chain = {node}
    pending = [node]
    while pending:
        for arg in pending.pop().all_input_nodes:
            if (
                arg in again
                and arg not in chain
                and all(u in chain for u in arg.users if u in again)
            ):
                chain.add(arg)
                pending.append(arg)
    return chain
