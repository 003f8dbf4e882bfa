"""Make the signature of a captured graph, in the interchange format."""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch import fx

from fxstack_capture.sources import InstanceAttr, Item, Key, Source
from fxstack_capture.torch_compat import int_oo
from fxstack_capture.torch_side.numbers.symbols import symbolic_number
from fxstack_capture.trace.records import CapturedCode
from fxstack_interchange.signature import (
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Stage,
    StageGraph,
    SymbolSpec,
)

_CONTAINERS = frozenset({"_modules", "_parameters", "_buffers"})


def stage_graph(code: CapturedCode) -> StageGraph:
    """Return the graph as stage CAPTURED, with the kinds of inputs and outputs, and the symbols."""
    graph = code.graph_module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    inputs = tuple(map(_input, placeholders, code.inputs, code.example_inputs))
    outputs = tuple(
        OutputSpec(OutputKind.USER_OUTPUT, value.name if isinstance(value, fx.Node) else None)
        for value in graph.output_node().args[0]
    )
    symbols = tuple(
        _symbol(value, source)
        for value, source in zip(code.example_inputs, code.inputs, strict=True)
        if _is_symbol(value)
    )
    return StageGraph(code.graph_module, GraphSignature(Stage.CAPTURED, inputs, outputs, symbols))


def _input(node: fx.Node, source: Source, value: Any) -> InputSpec:
    if _is_symbol(value):
        return InputSpec(InputKind.SYMBOL, node.name, str(value.node.expr), source.name)
    if isinstance(value, torch.Tensor):
        path = qualified_name(source)
        if getattr(value, "_is_param", False):
            return InputSpec(InputKind.PARAMETER, node.name, path or source.name, source.name)
        if path is not None and _holder(source) == "_buffers":
            return InputSpec(InputKind.BUFFER, node.name, path, source.name)
    return InputSpec(InputKind.USER_INPUT, node.name, None, source.name)


def _is_symbol(value: Any) -> bool:
    return symbolic_number(value) and isinstance(value.node.expr, sympy.Symbol)


def _symbol(value: Any, source: Source) -> SymbolSpec:
    node = value.node
    known = node.shape_env.var_to_range.get(node.expr)
    lower, upper = (0, None) if known is None else (known.lower, known.upper)
    return SymbolSpec(
        name=str(node.expr),
        hint=node.hint if isinstance(node.hint, int) else None,
        lower=-(2**63) if lower in (-int_oo, -sympy.oo) else int(lower),
        upper=None if upper in (None, int_oo, sympy.oo) else int(upper),
        source=source.name,
    )


def qualified_name(source: Source) -> str | None:
    """Return ``layers.0.weight`` for ``self._modules['layers']._modules['0']._parameters['weight']``."""
    names: list[str] = []
    step: Source | None = source
    while isinstance(step, Key) and _holder(step) in _CONTAINERS:
        names.append(str(step.key))
        step = step.of.base
        if isinstance(step, (Key, Item)) and _holder(step) not in _CONTAINERS:
            break
    return ".".join(reversed(names)) or None


def _holder(source: Source) -> str | None:
    """Return the name of the module's dictionary that ``source`` is an item of."""
    holder = source.base
    if isinstance(holder, InstanceAttr):
        return holder.attr
    return str(holder.key) if isinstance(holder, Key) else None
