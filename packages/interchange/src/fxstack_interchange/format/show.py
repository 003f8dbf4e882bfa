"""A stage graph as readable, Python-like text with shapes, dtypes and the user's source lines."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node

from fxstack_interchange.format.metadata import user_line
from fxstack_interchange.format.signature import InputSpec, OutputSpec, StageGraph, SymbolSpec
from fxstack_interchange.torch_compat import HigherOrderOperator, OpOverload

_DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b8",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


MAX_LINES: Final = 25
"""Limit of lines in ``str`` and ``repr`` of a public object."""
_WIDTH: Final = 160
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlevel = 2


def first_lines(text: str) -> str:
    """Return ``text``, or its first lines and the number of omitted lines. ``__str__`` of long records calls it."""
    lines = text.splitlines()
    if len(lines) <= MAX_LINES:
        return text
    kept = [line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..." for line in lines[: MAX_LINES - 1]]
    return "\n".join([*kept, f"... {len(lines) - len(kept)} more lines; .details() has all"])


def short_repr(record: Any) -> str:
    """Return the text of a dataclass in one line, with long values abbreviated; for ``__repr__``."""
    shown = (f"{each.name}={_SHORT.repr(getattr(record, each.name))}" for each in fields(record) if each.repr)
    return f"{type(record).__name__}({', '.join(shown)})"


def show(graph: StageGraph) -> str:
    """Return the graph as text. The text is for people; no function parses it."""
    inputs, outputs = graph.signature.inputs, graph.signature.outputs
    return "\n".join([*_header(graph), *_whole(graph.graph_module, inputs, outputs)]) + "\n"


def show_module(graph_module: GraphModule) -> str:
    """Return a graph without a signature as text like that of ``show``."""
    return "\n".join(_whole(graph_module, (), ())) + "\n"


def _whole(
    module: GraphModule, inputs: tuple[InputSpec, ...], outputs: tuple[OutputSpec, ...]
) -> Iterator[str]:
    """Yield the lines of a graph and of its subgraphs."""
    yield from _body(module.graph, inputs, outputs, "")
    for path, child in _subgraphs(module):
        yield from ("", f"# subgraph {path}", *_body(child.graph, (), (), path))


def show_graph(graph: Graph) -> str:
    """Return a graph without signature as text. The graph may be unfinished: a pass may still add nodes."""
    return "\n".join(_body(graph, (), (), "")) + "\n"


def _header(graph: StageGraph) -> Iterator[str]:
    """Yield the comments in front of a graph: its stage, its size and its symbols."""
    signature = graph.signature
    count = sum(1 for n in graph.graph_module.graph.nodes if n.op not in ("placeholder", "output"))
    yield (
        f"# {signature.stage.value} graph: {len(signature.inputs)} inputs, {count} operations, "
        f"{len(signature.outputs)} outputs"
    )
    yield from (_symbol(spec) for spec in signature.symbols)


def _symbol(spec: SymbolSpec) -> str:
    """Return the comment about a symbol, for example ``# symbol s0 in 2..inf, seen as 8``."""
    upper = "inf" if spec.upper is None else str(spec.upper)
    seen = "" if spec.hint is None else f", seen as {spec.hint}"
    source = f", from {spec.source}" if spec.source else ""
    return f"# symbol {spec.name} in {spec.lower}..{upper}{seen}{source}"


def _subgraphs(module: GraphModule) -> Iterator[tuple[str, GraphModule]]:
    """Yield the path and the module of each graph that a graph uses, at any depth."""
    used = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    # Sorted, so that equal graphs have equal texts.
    for path in sorted(used):
        value: Any = module
        for part in path.split("."):
            value = getattr(value, part, None)
        if isinstance(value, GraphModule):
            yield path, value
            yield from ((f"{path}.{inner}", child) for inner, child in _subgraphs(value))


def _body(
    graph: Graph, inputs: tuple[InputSpec, ...], outputs: tuple[OutputSpec, ...], name: str
) -> Iterator[str]:
    """Yield a graph in the form of a Python function. ``name``: the path of a subgraph, empty for the whole graph."""
    nodes = list(graph.nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    yield f"def {name.replace('.', '_') or 'graph'}("
    for index, node in enumerate(placeholders):
        note = _input_note(inputs[index]) if index < len(inputs) else ""
        yield f"    {node.name}: {value_text(node.meta.get('val'))},{note}"
    yield "):"
    last = None
    for node in nodes:
        if node.op == "placeholder":
            continue
        line = user_line(node)
        if line is not None and line != last and node.op != "output":
            yield f"    # {line}"
            last = line
        yield from _output(node, outputs) if node.op == "output" else (_statement(node),)


def _input_note(spec: InputSpec) -> str:
    """Return the comment behind an input: its kind, its target and its source."""
    parts = [spec.kind.value]
    if spec.target is not None:
        parts.append(spec.target)
    if spec.source is not None and spec.source != spec.target:
        parts.append(f"from {spec.source}")
    return "  # " + " ".join(parts)


def _output(node: Node, specs: tuple[OutputSpec, ...]) -> Iterator[str]:
    """Yield the lines of the return statement, with the kind of each output."""
    values = node.args[0] if node.args else ()
    if not isinstance(values, tuple | list):
        yield f"    return {_argument(values)}"
        return
    yield "    return ("
    for index, value in enumerate(values):
        note = ""
        if index < len(specs):
            target = f" of {specs[index].target}" if specs[index].target is not None else ""
            note = f"  # {specs[index].kind.value}{target}"
        yield f"        {_argument(value)},{note}"
    yield "    )"


def _statement(node: Node) -> str:
    """Return the line of a node, with its metadata in the place of a type annotation."""
    arguments = [_argument(arg) for arg in node.args]
    arguments += [f"{key}={_argument(value)}" for key, value in node.kwargs.items()]
    if node.op == "get_attr":
        call = f"self.{node.target}"
    elif node.op == "call_method":
        call = f"{arguments[0]}.{node.target}({', '.join(arguments[1:])})"
    else:
        call = f"{target_text(node.target)}({', '.join(arguments)})"
    kind = value_text(node.meta.get("val"))
    return f"    {node.name}: {kind} = {call}"


def target_text(target: object) -> str:
    """Return the name of an operator as a program spells it."""
    if isinstance(target, OpOverload):
        return str(target).removesuffix(".default")
    if isinstance(target, HigherOrderOperator):
        return str(target.name())
    if isinstance(target, str):
        return target
    module = str(getattr(target, "__module__", "") or "").removeprefix("_")
    name = str(getattr(target, "__name__", target))
    return f"{module}.{name}" if module not in ("", "builtins") else name


def value_text(value: object) -> str:
    """Return dtype and shape of a value, for example ``f32[s0, 5]``, and its device unless it is the CPU."""
    if isinstance(value, torch.Tensor):
        dtype = _DTYPES.get(value.dtype, str(value.dtype).removeprefix("torch."))
        device = "" if value.device.type == "cpu" else f" {value.device}"
        return f"{dtype}[{', '.join(str(size) for size in value.shape)}]{device}"
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return f"Sym({value})"
    if isinstance(value, tuple | list):
        return f"({', '.join(value_text(item) for item in value)})"
    return "?" if value is None else type(value).__name__


def _argument(value: object) -> str:
    """Return an argument of a node as Python text. A node is its name."""
    if isinstance(value, Node):
        return str(value.name)
    if isinstance(value, list):
        return f"[{', '.join(map(_argument, value))}]"
    if isinstance(value, tuple):
        inner = ", ".join(map(_argument, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {_argument(v)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({_argument(value.start)}, {_argument(value.stop)}, {_argument(value.step)})"
    return target_text(value) if callable(value) and not isinstance(value, type) else repr(value)
