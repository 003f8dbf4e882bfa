"""``Trace``: the state of one attempt to trace one frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxstack_capture.shapes.chosen import NOTHING_CHOSEN, Choices

if TYPE_CHECKING:
    from fxstack_capture.guards.records import Check, GuardSet
    from fxstack_capture.options import CaptureOptions
    from fxstack_capture.shapes.contract import Bound
    from fxstack_capture.sources import Source
    from fxstack_capture.trace.seams import Calls, Interpreter, Objects, TorchSide


@dataclass(slots=True)
class Trace:
    """One attempt. Parts are set by the driver; everything reaches its siblings through this record."""

    options: CaptureOptions
    guards: GuardSet
    objects: Objects
    calls: Calls
    torch: TorchSide
    interp: Interpreter
    for_entry: bool = True
    """Whether the replacement runs as an entry, whose guards hand the graph's inputs over."""
    contract: Bound | None = None
    """What was agreed on about the sizes of the arguments."""
    choices: Choices = NOTHING_CHOSEN
    """Sizes and numbers that are symbolic because the program says so."""
    exporting: bool = False
    """Whether the graph is for somebody else than this call (``export``)."""
    may_defer: bool = False
    """Whether the frame may run in plain Python this time."""
    may_fall_back: bool = False
    """Whether the replacement can run its frame in plain Python after all."""
    polyfills: bool = False
    """Whether C code that calls functions of the program is interpreted as Python, so that the graph can break in them."""

    def guard(self, source: Source, check: Check) -> None:
        self.guards.add(source, check, self.interp.user_stack())
