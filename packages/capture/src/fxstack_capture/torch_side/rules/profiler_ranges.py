"""Ranges of torch's profiler: a node begins each range, and a node of the same graph ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs
from fxstack_interchange.torch_facts.effects import BEGIN_RANGE, END_RANGE, open_range


def begin(name: str, args: str | None) -> None:
    """Do nothing. The trace calls this where the program begins a range; ``_begin`` is the rule of the call."""


def end() -> None:
    """Do nothing. The trace calls this where the program ends a range; ``_end`` is the rule of the call."""


def _begin(tracer: TracerProtocol, _fn: Callable[..., Any], args: Args, _kwargs: Kwargs) -> None:
    """Record a node that begins a profiler range."""
    tracer.record_effect(BEGIN_RANGE, args)


def _end(tracer: TracerProtocol, _fn: Callable[..., Any], _args: Args, _kwargs: Kwargs) -> None:
    """Record a node that ends the innermost range of the graph. A range from outside ends outside."""
    node = open_range(tracer.builder.graph)
    if node is not None:
        tracer.record_effect(END_RANGE, (node,))


def end_all(tracer: TracerProtocol) -> None:
    """Record the ends of the ranges that are still open when the graph ends."""
    while (node := open_range(tracer.builder.graph)) is not None:
        tracer.record_effect(END_RANGE, (node,))


RULES = {begin: _begin, end: _end}
