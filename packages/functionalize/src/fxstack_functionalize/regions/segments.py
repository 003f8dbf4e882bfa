"""Equal segments of a captured graph: consecutive nodes that compute the same from other operands."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.fx import Graph, Node

from fxstack_functionalize.regions.labels import UnlabelledError, arguments, kind_of, label_of
from fxstack_functionalize.regions.periods import Run, number_equal, runs

MIN_COPIES = 4
"""The number of equal segments from which on a shared region pays."""
MIN_NODES = 8
"""The number of nodes that a segment must have."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive nodes of a graph, the values that they use from outside, and the values used after them."""

    nodes: tuple[Node, ...]
    operands: tuple[Node, ...]
    results: tuple[Node, ...]


def equal_segments(graph: Graph) -> list[list[Segment]]:
    """Return groups of equal segments, each with at least ``MIN_COPIES`` members. Segments do not overlap."""
    nodes = [node for node in graph.nodes if node.op not in {"placeholder", "get_attr", "output"}]
    if len(nodes) < MIN_NODES * MIN_COPIES:
        return []
    calls = [(node.op, node.target) for node in nodes]
    counts = Counter(calls)
    # A node of a function that is called less often is in no run.
    labels = [
        _label(node) if counts[call] >= MIN_COPIES else None for node, call in zip(nodes, calls, strict=True)
    ]
    numbers = number_equal(labels)
    position = {node: index for index, node in enumerate(nodes)}
    groups: dict[Hashable, list[Segment]] = defaultdict(list)
    taken = [False] * len(nodes)
    for run in runs(numbers, period=MIN_NODES, copies=MIN_COPIES):
        if any(taken[run.start : run.end]):
            continue
        bounds = _boundaries(nodes, position, run)
        members: dict[Hashable, list[Segment]] = defaultdict(list)
        for start, end in pairwise(bounds):
            segment = _segment(nodes[start:end])
            key = _key(segment, tuple(numbers[start:end]))
            if key is not None:
                members[key].append(segment)
        for key, segments in members.items():
            if len(segments) >= MIN_COPIES:
                groups[key] += segments
                taken[run.start : run.end] = [True] * (run.end - run.start)
    return list(groups.values())


def _label(node: Node) -> Hashable | None:
    """Return the label of a node; None if the node must not be part of a segment."""
    try:
        label = label_of(node)
        hash(label)
    except (UnlabelledError, TypeError):
        return None
    return label


def _boundaries(nodes: Sequence[Node], position: dict[Node, int], run: Run) -> list[int]:
    """Return the starts of the copies of a run, and the end of the last copy.

    Copies may begin at any node of the first period. The best boundary has the fewest live values.
    """
    live = _live_values(nodes, position, run.start, min(run.start + 2 * run.period, run.end))

    def cost(offset: int) -> tuple[int, int, int]:
        values = live[offset + run.period]
        copies = (run.end - run.start - offset) // run.period
        return len(values), -copies, offset

    best = min(range(run.period), key=cost)
    return list(range(run.start + best, run.end + 1, run.period))


def _live_values(nodes: Sequence[Node], position: dict[Node, int], start: int, end: int) -> list[set[Node]]:
    """Return for each place in ``start:end`` the values computed in ``start:place`` that nodes from there on use."""
    live: list[set[Node]] = [set() for _ in range(end - start + 1)]
    for index in range(start, end):
        last = max((position.get(user, len(nodes)) for user in nodes[index].users), default=index)
        for place in range(index + 1, min(last, end) + 1):
            live[place - start].add(nodes[index])
    return live


def _segment(nodes: Sequence[Node]) -> Segment:
    """Return the segment of ``nodes``."""
    inner = set(nodes)
    used = (source for node in nodes for source in node.all_input_nodes)
    operands = dict.fromkeys(source for source in used if source not in inner)
    results = (node for node in nodes if any(user not in inner for user in node.users))
    return Segment(tuple(nodes), tuple(operands), tuple(results))


def _key(segment: Segment, labels: tuple[int, ...]) -> Hashable | None:
    """Return a value that equal segments share: targets, constants, metadata and wiring. None: do not share."""
    if not segment.results or min(labels) < 0 or _regroups_gradients(segment):
        return None
    number = {node: ("operand", index) for index, node in enumerate(segment.operands)}
    number.update({node: ("node", index) for index, node in enumerate(segment.nodes)})
    try:
        kinds = tuple(kind_of(node.meta.get("val")) for node in segment.operands)
        wiring = tuple(
            (arguments(node.args, number.__getitem__), arguments(node.kwargs, number.__getitem__))
            for node in segment.nodes
        )
    except UnlabelledError:
        return None
    results = [node.meta.get("val") for node in segment.results]
    if not all(isinstance(value, torch.Tensor) for value in results):
        return None
    if sum(_requires_grad(value) for value in results) > 1:
        return None
    return kinds, labels, wiring, tuple(number[node] for node in segment.results)


def _requires_grad(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _regroups_gradients(segment: Segment) -> bool:
    """Whether a region would add the terms of a gradient in another order than the nodes alone.

    Autograd adds the terms in the reverse order of the uses. A region adds the terms of its own uses first.
    """
    inner = set(segment.nodes)
    for operand in segment.operands:
        if not _requires_grad(operand.meta.get("val")):
            continue
        inside = sum(user in inner for user in operand.users)
        if len(operand.users) > inside and (inside > 1 or _is_used_twice(operand, inner)):
            return True
    return False


def _is_used_twice(operand: Node, inner: set[Node]) -> bool:
    """Whether one node of a segment has ``operand`` as two of its arguments (``x * x``)."""

    def count(value: object) -> int:
        if value is operand:
            return 1
        if isinstance(value, (list, tuple)):
            return sum(map(count, value))
        return sum(map(count, value.values())) if isinstance(value, dict) else 0

    return any(user in inner and count((user.args, user.kwargs)) > 1 for user in operand.users)
