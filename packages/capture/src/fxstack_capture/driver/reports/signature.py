"""The interchange signature of a captured graph: the kind of each input.

Inputs are parameters, buffers, symbols or arguments.
"""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture import sources as s
from fxstack_capture.trace.records import CapturedCode
from fxstack_interchange import (
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Stage,
    StageGraph,
    SymbolSpec,
)

_TABLES = {"_parameters": InputKind.PARAMETER, "_buffers": InputKind.BUFFER}
"""Maps a dictionary of a module to the kind of the inputs that are read from it."""


def signature_of(captured: CapturedCode) -> StageGraph:
    """Return a captured graph with its signature: names, kinds and sources of inputs, outputs and symbols.

    ``capture`` and ``export`` return this, and observers of passes print it.
    """
    graph = captured.graph_module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    (output,) = (node for node in graph.nodes if node.op == "output")
    inputs, symbols = [], []
    for node, source, value in zip(placeholders, captured.inputs, captured.example_inputs, strict=True):
        kind, target = _kind_of(source, value)
        inputs.append(InputSpec(kind, node.name, target, source.name))
        if kind is InputKind.SYMBOL:
            symbols.append(_symbol(value, source))
    outputs = tuple(OutputSpec(OutputKind.USER_OUTPUT, getattr(n, "name", None)) for n in output.args[0])
    signature = GraphSignature(Stage.CAPTURED, tuple(inputs), outputs, tuple(symbols))
    return StageGraph(captured.graph_module, signature)


def _kind_of(source: s.Source, value: object) -> tuple[InputKind, str | None]:
    """Return the kind and the target of an input.

    The target of a parameter or buffer is its qualified name. The target of a symbol is its expression. Any
    other input has None.
    """
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return InputKind.SYMBOL, str(value.node.expr)
    if isinstance(source, s.Key) and isinstance(source.of, s.InstanceAttr):
        kind = _TABLES.get(source.of.attr)
        if kind is not None:
            return kind, qualified_name(source)
    return InputKind.USER_INPUT, None


def qualified_name(source: s.Source) -> str:
    """Return the qualified name of a parameter or buffer, for example ``layers.0.weight``."""
    parts: list[str] = []
    current: s.Source | None = source
    while current is not None:
        if isinstance(current, s.Key) and isinstance(current.of, s.InstanceAttr):
            parts.insert(0, str(current.key))
            current = current.of.of
            continue
        break
    return ".".join(parts)


def _symbol(value: Any, source: s.Source) -> SymbolSpec:
    """Return the record of a symbolic input: its range, hint and source."""
    node = value.node
    lower, upper = 0, None
    ranges = getattr(node.shape_env, "var_to_range", {}).get(node.expr)
    if ranges is not None:
        lower = int(ranges.lower) if ranges.lower.is_Integer else 0
        upper = int(ranges.upper) if ranges.upper.is_Integer else None
    hint = node.hint if isinstance(node.hint, int) else None
    return SymbolSpec(str(node.expr), hint, lower, upper, source.name)
