"""A captured graph with the inputs of one call and the state of torch in which the call ran."""

from __future__ import annotations

import copy
import sysconfig
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxstack_capture.guards.torch_state import GETTERS
from fxstack_interchange.format.encoding.bare import graph_from_json, graph_to_json
from fxstack_interchange.format.encoding.targets import name_of
from fxstack_interchange.format.errors import SaveError
from fxstack_interchange.format.metadata import frames
from fxstack_interchange.modules import make_graph_module

_PACKAGES = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib")})
_SETTERS = {
    "grad mode": "torch.set_grad_enabled({value})",
    "inference mode": "torch.inference_mode({value}).__enter__()",
    "default dtype": "torch.set_default_dtype({value})",
    "deterministic algorithms": "torch.use_deterministic_algorithms({value})",
}
_DEFAULTS = {
    "grad mode": True,
    "inference mode": False,
    "default dtype": torch.float32,
    "deterministic algorithms": False,
}
_NAMESPACES = frozenset({"aten", "prims", "prim", "higher_order"})
_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Case:
    """A captured graph and the inputs of one call: tensors and numbers, in the order of the placeholders."""

    graph: GraphModule
    inputs: tuple[Any, ...]
    copied: frozenset[int] = frozenset()
    """Positions of inputs that require a gradient and are no leaves: the graph may write into them."""
    state: tuple[str, ...] = ()
    """Statements that put torch into the state of the call."""
    place: str = ""
    """The function from which the graph was captured, with file and line."""
    lines: dict[str, str] = field(default_factory=dict)
    """File, line and text of the program's line, by the name of a node."""

    @property
    def size(self) -> int:
        """Return the number of operations."""
        return sum(node.op not in ("placeholder", "output") for node in self.graph.graph.nodes)

    def save(self, path: Path) -> None:
        """Write the case into a file.

        Raises:
            SaveError: the graph calls a function that is not torch's, or has tensors of its own.
        """
        record = {
            "graph": graph_to_json(self.graph),
            "inputs": list(self.inputs),
            "copied": sorted(self.copied),
            "state": list(self.state),
            "place": self.place,
            "lines": self.lines,
        }
        torch.save(record, path)


def load_case(path: Path) -> Case:
    """Return the case that ``Case.save`` has written into a file."""
    record = torch.load(path, weights_only=True)
    return Case(
        graph_from_json(record["graph"]),
        tuple(record["inputs"]),
        frozenset(record["copied"]),
        tuple(record["state"]),
        record["place"],
        record["lines"],
    )


def make_case(graph: GraphModule, inputs: Sequence[object], place: str) -> Case:
    """Return the case of a call that is about to run."""
    tensors = {i: x for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)}
    copied = frozenset(i for i, x in tensors.items() if x.requires_grad and not x.is_leaf)
    lines = {node.name: line for node in graph.graph.nodes if (line := program_line(node))}
    return Case(graph, copies(inputs), copied, tuple(_state()), place, lines)


def edit_copy(graph_module: GraphModule, edit: Callable[[Node], None]) -> GraphModule:
    """Return a copy of a graph module. ``edit`` changes each node of the copy as soon as the node is made."""
    graph = Graph()
    env: dict[Node, Any] = {}
    for node in graph_module.graph.nodes:
        env[node] = graph.node_copy(node, env.__getitem__)
        edit(env[node])
    return make_graph_module(graph_module, graph)


def copies(inputs: Sequence[object]) -> tuple[Any, ...]:
    """Return the inputs with copies of tensors, which are leaves and share memory as the originals do."""
    plain: list[Any] = [x.detach() if isinstance(x, torch.Tensor) else x for x in inputs]
    copied = copy.deepcopy(plain)
    for value, original in zip(copied, inputs, strict=True):
        if isinstance(original, torch.Tensor) and original.requires_grad:
            value.requires_grad_()
    return tuple(copied)


def program_line(node: Node) -> str:
    """Return file, line and text of the innermost line in the trace of ``node`` that is not a library's."""
    for file, line, text in frames(node):
        if not file.startswith((*_PACKAGES, "<")):
            return f"{file}:{line}: {text}"
    return ""


def _state() -> Iterator[str]:
    """Yield the statements that change torch from its default state to the present state."""
    present = {getter.name: getter.read() for getter in GETTERS}
    for name, statement in _SETTERS.items():
        if present[name] != _DEFAULTS[name]:
            yield statement.format(value=present[name])
    for device in _DEVICES:
        if present.get(f"autocast on {device}"):
            yield f"torch.autocast({device!r}, {present[f'autocast dtype on {device}']}).__enter__()"


def is_foreign(node: Node) -> bool:
    """Return whether a node calls an operator or a function that only the program defines."""
    if node.op != "call_function":
        return False
    namespace = getattr(node.target, "namespace", None)
    if namespace is not None:
        return namespace not in _NAMESPACES
    try:
        name_of(node.target)
    except SaveError:
        return True
    return isinstance(node.target, types.FunctionType) and node.target.__module__ == "__main__"
