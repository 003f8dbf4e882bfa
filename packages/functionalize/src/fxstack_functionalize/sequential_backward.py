"""Find which results eager can differentiate one after the other without ``retain_graph``.

Autograd frees the saved tensors of a node when the node has run. So eager can differentiate a second result
after a first one exactly if no node with saved tensors is reachable from both results. The trace runs under
autograd, so its autograd graph equals eager's. ``ResultHistories`` reads from this graph which results reach
which nodes with saved tensors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import reduce
from operator import or_
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.fx import Node

from fxstack_functionalize import torch_compat
from fxstack_functionalize.torch_compat import pytree
from fxstack_interchange import InputKind, StageGraph

# Limits: the first backward frees all saved tensors if saved-tensor hooks run in eager, if one result is
# computed from another (return logits, loss, other), or if a third result joins the histories (return f(h),
# g(h, k), f(k)).

RAW, SAVED = "_raw_saved_", "_saved_"


class ResultHistories:
    """The nodes of the autograd graph that the backward of each result runs."""

    def __init__(self, roots: Mapping[int, Any]) -> None:
        """``roots`` maps the position of each differentiable result to its ``grad_fn``."""
        self._roots = roots
        self._bits = {position: 1 << number for number, position in enumerate(roots)}
        several = len(roots) > 1
        self._reached = _reaching_results(roots, self._bits) if several else {}
        names: dict[type, list[str]] = {}
        masks = {mask for node, mask in self._reached.items() if _has_saved_tensors(node, names)}
        self._groups = [self._positions(mask) for mask in sorted(masks)]

    def _positions(self, mask: int) -> tuple[int, ...]:
        return tuple(position for position, bit in self._bits.items() if mask & bit)

    def atoms(self) -> tuple[tuple[int, ...], ...]:
        """Return the distinct sets of results that share a node with saved tensors.

        Only one result of such a set (an atom) can be differentiated without ``retain_graph``.
        """
        return tuple(self._groups)

    def sources(self, leaves: Mapping[int, Any]) -> dict[int, tuple[int, ...]]:
        """Return for each leaf (key: number of the input) the results whose backward reaches the leaf."""
        if len(self._roots) < 2:
            return dict.fromkeys(leaves, tuple(self._roots))
        return {
            index: self._positions(self._reached.get(get_gradient_edge(leaf).node, 0))
            for index, leaf in leaves.items()
        }


def _reaching_results(roots: Mapping[int, Any], bits: Mapping[int, int]) -> dict[Any, int]:
    """Return for each node the mask of the results whose backward runs it (in topological order)."""
    waiting: dict[Any, int] = {}
    stack = [*dict.fromkeys(roots.values())]
    nodes = set(stack)
    while stack:
        for following, _ in stack.pop().next_functions:
            if following is not None:
                waiting[following] = waiting.get(following, 0) + 1
                if following not in nodes:
                    nodes.add(following)
                    stack.append(following)
    reached = dict.fromkeys(nodes, 0)
    for position, root in roots.items():
        reached[root] |= bits[position]
    ready = [node for node in nodes if node not in waiting]
    while ready:
        node = ready.pop()
        for following, _ in node.next_functions:
            if following is not None:
                reached[following] |= reached[node]
                waiting[following] -= 1
                if not waiting[following]:
                    ready.append(following)
    return reached


def _has_saved_tensors(node: object, names: dict[type, list[str]]) -> bool:
    """Whether a node has saved a tensor. ``names`` caches the saved-tensor attributes of each node class."""
    try:
        return any(_saved_tensors(node, name) for name in _saved_names(node, names))
    except RuntimeError:  # the saved tensor was changed in place afterwards
        return True


def _saved_names(node: object, names: dict[type, list[str]]) -> list[str]:
    """Return the attributes of a node that hold its saved tensors. C++ custom functions differ by instance."""
    kind = type(node)
    if isinstance(node, torch_compat.FunctionBase):
        return ["saved_tensors"]
    if kind not in names or kind.__name__ == "CppFunction":
        raw = [name for name in dir(node) if name.startswith(RAW)]
        names[kind] = [SAVED + name.removeprefix(RAW) for name in raw]
    return names[kind]


def _saved_tensors(node: object, name: str) -> list[torch.Tensor]:
    """Return the tensors in the attribute ``name`` of an autograd node."""
    value = getattr(node, name)
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def saved_storages(roots: Iterable[Any], key: Callable[[torch.Tensor], int]) -> frozenset[int]:
    """Return the ``key`` of each tensor that a node behind ``roots`` has saved."""
    names: dict[type, list[str]] = {}
    keys: set[int] = set()
    for node in _reaching_results(dict(enumerate(roots)), defaultdict(int)):
        for name in _saved_names(node, names):
            with suppress(RuntimeError):  # the tensor was changed in place afterwards: its backward raises
                keys.update(map(key, _saved_tensors(node, name)))
    return frozenset(keys)


def needed_by(backward: StageGraph, positions: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
    """Return for each saved tensor of ``backward`` the results whose gradients use the saved tensor.

    ``positions`` maps the name of each tangent to the position of its result. A node that combines a gradient
    with saved tensors uses these saved tensors for all results whose tangents reach the node.
    """
    saved = [spec.name for spec in backward.signature.inputs_of(InputKind.SAVED)]
    bit_of = {name: 1 << number for number, name in enumerate(saved)}
    tangents = {name: 1 << position for name, position in positions.items()}
    from_saved: dict[Node, int] = {}
    from_tangents: dict[Node, int] = {}
    needed: dict[int, int] = {}
    for node in backward.graph_module.graph.nodes:
        inputs = node.all_input_nodes
        by_tangents = tangents.get(node.name, 0)
        for used in inputs:
            by_tangents |= from_tangents[used]
        by_saved = bit_of.get(node.name, 0)
        for used in inputs:
            by_saved |= 0 if from_tangents[used] else from_saved[used]
        if node.op == "output":
            by_tangents = sum(tangents.values())
        if by_tangents:
            needed[by_tangents] = needed.get(by_tangents, 0) | by_saved
        from_tangents[node], from_saved[node] = by_tangents, by_saved
    users = [
        reduce(or_, (by_tangents for by_tangents, mask in needed.items() if mask & bit_of[name]), 0)
        for name in saved
    ]
    return tuple(tuple(position for position in positions.values() if mask >> position & 1) for mask in users)
