"""Tracebacks of errors in generated code: the frames of the program stand in place of the generated frames."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, TracebackType

from torch import fx

from fxstack_interchange.locations.tracebacks import TracebackStub, add_entry
from fxstack_interchange.operators.origins import ORIGIN, SOURCE


def stack_traces(graph: fx.Graph) -> dict[str, str]:
    """Return the stack traces of the nodes of ``graph``, by node name and by name of the captured node."""
    nodes = [(node, trace) for node in graph.nodes if (trace := node.meta.get("stack_trace"))]
    captured = {node.meta.get("original_name", node.name): trace for node, trace in nodes}
    return captured | {node.name: trace for node, trace in nodes}


def locate_traceback(traceback: TracebackType | None, traces: Mapping[str, str]) -> TracebackType | None:
    """Return a traceback with the program's frames in place of generated frames.

    ``traces`` are the ``stack_traces`` of the graph. Return None if no frame runs a node of the graph.
    """
    while traceback is not None:
        trace = _trace_at(traceback.tb_frame, traceback.tb_lineno, traces)
        if trace:
            rest = traceback.tb_next
            for code, line in reversed([*_frames(trace)]):
                rest = add_entry(rest, TracebackStub(code), line)
            return rest
        traceback = traceback.tb_next
    return None


def _trace_at(frame: FrameType, line: int, traces: Mapping[str, str]) -> str:
    """Return the stack trace of the node that a line of generated code runs, or ""."""
    source = frame.f_globals.get(SOURCE)
    if source is not None:
        name = source.splitlines()[line - 1].partition(ORIGIN)[2]
        return traces.get(name, "")
    module = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
    if not isinstance(module, fx.GraphModule):
        return ""
    name = linecache.getline(frame.f_code.co_filename, line).partition("=")[0].strip()
    nodes = (node for node in module.graph.nodes if node.name == name)
    return next((node.meta.get("stack_trace", "") for node in nodes), "") or traces.get(name, "")


_ENTRY = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+), in (?P<name>.*)')


def _frames(trace: str) -> Iterator[tuple[CodeType, int]]:
    """Yield, for each frame of a stack trace, a code object with the frame's names, and its line."""
    for entry in _ENTRY.finditer(trace):
        name = entry["name"]
        code = _empty.__code__.replace(
            co_filename=entry["file"], co_name=name.rpartition(".")[2], co_qualname=name
        )
        yield code, int(entry["line"])


def _empty() -> None: ...
