"""Describe frames, breaks, graphs and partitions of the stages as records."""

from __future__ import annotations

import ast
import linecache
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import torch
from torch.fx import GraphModule, Node

from fxstack.log import Captured
from fxstack.trace import records
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports import recompiling
from fxstack_capture.driver.reports.records import FrameRecord
from fxstack_capture.guards.explain import estimated_nanoseconds, guard_condition, needed_at
from fxstack_capture.trace.records import CapturedCode
from fxstack_functionalize import SharedRegion
from fxstack_interchange import Partition, StageGraph, show
from fxstack_interchange.format.metadata import user_stack
from fxstack_interchange.format.show import show_module, target_text, value_text
from fxstack_interchange.user_warnings import belongs_to_torch
from fxstack_partition import PartitionOptions, compare, explain, simulate

_CALLS = ("call_function", "call_method", "call_module")


def frame_of(record: FrameRecord, graph: int, *, in_full: bool = True) -> records.Frame:
    """Return the record of a frame. ``graph`` is the number of its captured graph, or 0. ``in_full``: with texts."""
    guards = [
        records.Guard(guard_condition(guard, record.names), needed_at(guard), estimated_nanoseconds(guard))
        for guard in (record.guards if in_full else ())
    ]
    return records.Frame(
        place=record.place,
        file=record.file,
        line=record.line,
        name=record.name,
        verdict=record.verdict.value,
        why=record.why,
        resumed=record.resumed,
        graph=graph,
        guards=tuple(guards),
        code=record.code if in_full else "",
    )


def _sources(nodes: Iterable[Node]) -> tuple[records.Source, ...]:
    """Return the functions of the program from which nodes come, outermost first, each once."""
    lines = dict.fromkeys(line for node in nodes for line in stack_of(node))
    functions = dict.fromkeys(_source(line.file, line.line) for line in lines)
    return tuple(source for source in functions if source is not None)


@cache
def _source(file: str, line: int) -> records.Source | None:
    """Return the innermost function around a line; None if the file is not there."""
    lines = linecache.getlines(file)
    spans = [span for span in _functions(file) if span[0] <= line <= span[1]]
    if not spans:
        return None
    first, last = min(spans, key=lambda span: span[1] - span[0])
    return records.Source(file, first, "".join(lines[first - 1 : last]))


@cache
def _functions(file: str) -> tuple[tuple[int, int], ...]:
    """Return the first and last lines of the functions of a file."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    return tuple((node.lineno, node.end_lineno or node.lineno) for node in nodes)


def break_of(record: BreakRecord) -> records.Break:
    """Return the record of a graph break."""
    stack = tuple(records.Line(file, line or 0, function) for file, line, function in record.stack)
    return records.Break(record.reason.id, record.title, record.reason.why, record.reason.fix, stack)


def recompilation_of(recompilation: recompiling.Recompilation) -> records.Recompilation:
    """Return the record of a recompilation."""
    dead_object = "an object that no longer exists"
    failures = tuple(
        records.FailedGuard(f.source_name or dead_object, f.demanded, f.found, f.user_line)
        for f in recompilation.failures
    )
    return records.Recompilation(
        f"{recompilation.name} ({recompilation.file}:{recompilation.line})", failures
    )


def paths_of(code: CapturedCode) -> dict[str, str]:
    """Return the paths of the inputs of a captured graph, by name: ``blocks.0.weight``, ``x``, ``args[1]['k']``."""
    nodes = code.graph_module.graph.find_nodes(op="placeholder")
    return {
        node.name: _TABLE.sub(r".\1", source.name).removeprefix(".")
        for node, source in zip(nodes, code.inputs, strict=False)
    }


_TABLE: Final = re.compile(r"(?:self)?\._(?:modules|parameters|buffers)\['([^']*)'\]")
"""An access to an attribute of a module: ``self._modules['blocks']._parameters['weight']`` is ``blocks.weight``."""


def graph_of(
    captured: Captured, stage: str, graph_module: GraphModule, sources: Mapping[str, str]
) -> records.Graph:
    """Return the record of a graph without a signature. ``sources``: where inputs come from, by name."""
    nodes = graph_module.graph.find_nodes(op="placeholder")
    inputs = tuple(
        records.GraphInput(node.name, "input", sources.get(node.name, ""), value_text(node.meta.get("val")))
        for node in nodes
    )
    functions = _sources(graph_module.graph.nodes) if stage == "captured" else ()
    text, operations = show_module(graph_module), _operations(graph_module)
    return records.Graph(captured.number, captured.place, stage, text, inputs, operations, (), functions)


def stage_graph(captured: Captured, graph: StageGraph, sources: Mapping[str, str]) -> records.Graph:
    """Return the record of a stage's graph. ``sources``: where inputs of the captured graph come from, by name."""
    signature = graph.signature
    stage, text, operations = signature.stage.value, show(graph), _operations(graph.graph_module)
    placeholders = graph.graph_module.graph.find_nodes(op="placeholder")
    inputs = []
    for spec, node in zip(signature.inputs, placeholders, strict=True):
        path = sources.get(spec.target or spec.name) or sources.get(spec.name)
        source = path or spec.target or spec.source or ""
        layout = value_text(node.meta.get("val"))
        inputs.append(records.GraphInput(spec.name, spec.kind.value, source, layout))
    symbols = tuple(
        records.Symbol(s.name, _known(s.hint), s.lower, _known(s.upper), s.source or "")
        for s in signature.symbols
    )
    return records.Graph(captured.number, captured.place, stage, text, tuple(inputs), operations, symbols, ())


def _known(bound: int | None) -> int:
    return -1 if bound is None else bound


def _operations(graph_module: GraphModule) -> tuple[records.Operation, ...]:
    return tuple(_operation(node) for node in graph_module.graph.nodes if node.op in _CALLS)


def _operation(node: Node) -> records.Operation:
    """Return the record of a node, with the bytes of its value."""
    value = node.meta.get("val")
    size = sum(map(_bytes, value if isinstance(value, tuple | list) else (value,)))
    return records.Operation(node.name, target_text(node.target), value_text(value), size, stack_of(node))


def stack_of(node: Node) -> tuple[records.Line, ...]:
    """Return the program's lines of a node, outermost first, without lines of torch."""
    return tuple(records.Line(*frame) for frame in user_stack(node) if not belongs_to_torch(frame[0]))


def _bytes(value: object) -> int:
    """Return the bytes of a tensor, with the hint of each symbol; 0 for other values and for sizes from data."""
    if not isinstance(value, torch.Tensor):
        return 0
    sizes = [size.node.hint if isinstance(size, torch.SymInt) else size for size in value.shape]
    if None in sizes:
        return 0
    return int(math.prod(sizes) * value.dtype.itemsize)


def region_of(captured: Captured, region: SharedRegion) -> records.Region:
    """Return the record of a region of a graph."""
    return records.Region(
        captured.number,
        captured.place,
        region.name,
        region.calls,
        region.nodes,
        region.automatic,
        region.refusal or "",
    )


def cut_of(captured: Captured, parts: Partition, options: PartitionOptions) -> records.Cut:
    """Return the record of a partition."""
    explanation = explain(parts, options)
    saved = tuple(records.SavedValue(s.name, s.bytes, s.rule, s.line or "") for s in explanation.saved)
    recomputed = tuple(
        records.RecomputedValue(r.name, r.chain, r.flops, r.seconds, r.line or "")
        for r in explanation.recomputed
    )
    moments = simulate(parts, options).moments
    timeline = tuple(records.Moment(m.stage, m.name, m.bytes) for m in moments)
    return records.Cut(captured.number, captured.place, saved, recomputed, timeline)


def alternatives_of(captured: Captured, joint: StageGraph) -> records.Alternatives:
    """Return the figures of other partitioners for a joint graph; partitioners that refuse the graph are left out."""
    rows = tuple(
        records.Alternative(row.label, row.saved_bytes, row.peak, row.recomputed_flops, row.step_seconds)
        for row in compare(joint).rows
        if not row.error
    )
    return records.Alternatives(captured.number, captured.place, rows)


def stacks_of(origins: Iterable[str], nodes: Mapping[str, Node]) -> tuple[tuple[records.Line, ...], ...]:
    """Return the stacks of the nodes that ``origins`` names, each stack once, for the record of a kernel."""
    stacks = dict.fromkeys(stack_of(nodes[name]) for name in origins if name in nodes)
    return tuple(stack for stack in stacks if stack)
