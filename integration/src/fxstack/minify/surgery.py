"""Operations that make a case smaller. Each returns a new case, which may fail in another way or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import is_not
from typing import Any

import torch
from torch.fx import Graph, Interpreter, Node
from torch.fx.node import map_arg

from fxstack.minify.cases import Case, copies, edit_copy
from fxstack.torch_compat import pytree
from fxstack_capture.torch_side.global_state.state import sets_state
from fxstack_interchange.modules import make_graph_module

_IN_PLACE = ("iadd", "isub", "imul", "itruediv", "setitem", "ior", "iand", "ipow", "ifloordiv")


def calls(case: Case) -> list[Node]:
    """Return the operations in order."""
    return [node for node in case.graph.graph.nodes if node.op not in ("placeholder", "output")]


def outputs(case: Case) -> list[Any]:
    """Return the results of the graph."""
    (output,) = case.graph.graph.find_nodes(op="output")
    values = output.args[0]
    return list(values) if isinstance(values, (tuple, list)) else [values]


def rebuild(
    case: Case,
    *,
    keep: Callable[[Node], bool] = lambda _node: True,
    results: Sequence[Any] | None = None,
    values: Mapping[Node, Any] | None = None,
    aliases: Mapping[Node, Any] | None = None,
) -> Case:
    """Return the case without some operations.

    Args:
        case: The case.
        keep: Whether an operation stays. An operation that goes has no users that stay, or is in ``values`` or
            ``aliases``.
        results: The results of the new graph; None: the results of the old graph.
        values: Operations that become inputs, with the values of the inputs.
        aliases: Operations that are replaced, each with the earlier node or constant that replaces it.
    """
    values, aliases = values or {}, aliases or {}
    new_results = outputs(case) if results is None else list(results)
    graph = Graph()
    env: dict[Node, Any] = {}
    inputs: list[Any] = []
    copied: set[int] = set()
    old = case.graph.graph.find_nodes(op="placeholder")
    used = _needed_nodes(case, keep, new_results, values, aliases)
    for position, (node, value) in enumerate([*zip(old, case.inputs, strict=True), *values.items()]):
        if node not in used:
            continue
        env[node] = graph.placeholder(node.name)
        if position in case.copied if position < len(old) else _is_written(node, value):
            copied.add(len(inputs))
        inputs.append(value)
    for node in calls(case):
        if node in values or node not in used:
            continue
        if node in aliases:
            env[node] = map_arg(aliases[node], env.__getitem__)
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
    graph.output(tuple(map_arg(new_results, env.__getitem__)))
    module = make_graph_module(case.graph, graph)
    return replace(case, graph=module, inputs=tuple(inputs), copied=frozenset(copied))


def _needed_nodes(
    case: Case,
    keep: Callable[[Node], bool],
    results: list[Any],
    values: Mapping[Node, Any],
    aliases: Mapping[Node, Any],
) -> set[Node]:
    """Return the nodes that the new graph needs: for its results, for writes into tensors and for torch's state."""
    needed: set[Node] = set()
    map_arg(results, needed.add)
    for node in reversed(calls(case)):
        if node in values:
            continue
        if node in aliases:
            if node in needed:
                map_arg(aliases[node], needed.add)
        elif node in needed or (keep(node) and (_writes(node) or sets_state(node) or node.is_impure())):
            needed.add(node)
            map_arg((node.args, node.kwargs), needed.add)
    return needed


def _is_written(node: Node, value: object) -> bool:
    """Whether an operation writes into the value of ``node``, which requires a gradient: then it can be no leaf."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return False
    return any(_writes(user) for user in node.users)


def _writes(node: Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE


def is_value(value: object) -> bool:
    """Whether a value can be an input."""
    return isinstance(value, (torch.Tensor, bool, int, float))


def node_values(case: Case) -> dict[str, Any]:
    """Return the values of the operations of the graph in eager, by name: copies from when they were computed."""
    by_name: dict[str, Any] = {}

    class Recording(Interpreter):
        """Runs a graph and keeps a copy of the value of each call in ``by_name``."""

        def run_node(self, n: Node) -> Any:
            value = super().run_node(n)
            if n.op.startswith("call") and is_value(value):
                by_name[n.name] = copies([value])[0]
            return value

    torch.manual_seed(0)
    arguments = [x.clone() if i in case.copied else x for i, x in enumerate(copies(case.inputs))]
    Recording(case.graph, garbage_collect_values=False).run(*arguments)
    return by_name


def first_calls(case: Case, count: int) -> Case:
    """Return the first ``count`` operations; the graph returns what later operations and results use of them."""
    first = dict.fromkeys(calls(case)[:count])
    ends = [node for node in first if not node.users or any(user not in first for user in node.users)]
    return rebuild(case, keep=first.__contains__, results=ends)


def without_first_calls(case: Case, count: int, values: Mapping[str, Any]) -> Case | None:
    """Return the case without its first ``count`` operations, whose values become inputs; None if a value cannot be."""
    first = calls(case)[:count]
    removed = set(first)
    crossing = [n for n in first if any(user not in removed for user in n.users)]
    if any(node.name not in values for node in crossing):
        return None
    states = {node for node in first if node.name not in values and not node.users}
    return rebuild(
        case,
        keep=lambda node: node not in removed or node in states,
        values={n: values[n.name] for n in crossing},
    )


def drop_one(case: Case, values: Mapping[str, Any]) -> Iterator[Case]:
    """Return cases with an operation less, or a result less."""
    results = outputs(case)
    for position in range(len(results)):
        if len(results) > 1:
            yield rebuild(case, results=results[:position] + results[position + 1 :])
    for node in reversed(calls(case)):
        if not node.users:
            yield rebuild(case, keep=partial(is_not, node))
            continue
        for other in dict.fromkeys(node.all_input_nodes):
            if _have_same_metadata(values.get(node.name), _value(case, other, values)):
                yield rebuild(case, aliases={node: other})
        if node.name in values:
            yield rebuild(case, values={node: values[node.name]})


def _value(case: Case, node: Node, values: Mapping[str, Any]) -> Any:
    """Return the value of a node: its input of the case, or its entry in ``values``; None if there is none."""
    if node.op == "placeholder":
        return case.inputs[case.graph.graph.find_nodes(op="placeholder").index(node)]
    return values.get(node.name)


def _have_same_metadata(value: object, other: object) -> bool:
    """Whether both are tensors of the same shape, dtype and device. Strides may differ."""
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
        return (value.shape, value.dtype, value.device) == (other.shape, other.dtype, other.device)
    return False


def without_gradients(case: Case) -> Case:
    """Return the case without gradients."""
    inputs = [x.detach() if isinstance(x, torch.Tensor) else x for x in case.inputs]
    return replace(case, inputs=tuple(inputs), copied=frozenset())


def shrink_sizes(case: Case) -> Iterator[Case]:
    """Return cases in which every size of some number is less, in inputs and in arguments of operations."""
    tensors = [x for x in case.inputs if isinstance(x, torch.Tensor)]
    sizes = sorted({n for x in tensors for n in x.shape if n > 1}, reverse=True)
    for size in sizes:
        for new in dict.fromkeys((1, 2, 3, size // 2)):
            if 0 < new < size:
                yield _resize(case, size, new)


def _resize(case: Case, size: int, new: int) -> Case:
    """Return the case with ``new`` in place of ``size``, in the shapes of inputs and in arguments of operations."""

    def fewer(value: Any) -> Any:
        return new if type(value) is int and value == size else value

    def cut(value: Any) -> Any:
        """Return a tensor with ``new`` elements in each dimension of ``size``.

        A number is changed as ``fewer`` does.
        """
        if not isinstance(value, torch.Tensor) or size not in value.shape:
            return fewer(value)
        part = value.detach()[tuple(slice(new) if n == size else slice(None) for n in value.shape)]
        return part.clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad)

    def shrink(node: Node) -> None:
        if node.op.startswith("call"):
            node.args, node.kwargs = pytree.tree_map(fewer, (node.args, node.kwargs))

    return replace(case, graph=edit_copy(case.graph, shrink), inputs=tuple(map(cut, case.inputs)))
