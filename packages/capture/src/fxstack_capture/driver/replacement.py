"""A frame's replacement in the making."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import shown
from fxstack_capture.emit.frame import Draft, computes_numbers_only
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.guards.records import Guard
from fxstack_capture.trace.records import CapturedCode


@dataclass(frozen=True, slots=True)
class Written:
    """A frame's replacement in the making, and what it was made from."""

    draft: Draft | None
    guards: tuple[Guard, ...]
    graph_break: BreakRecord | None
    raised: BaseException | None = None

    @property
    def error(self) -> str:
        """The exception that the trace ended with, as text."""
        return "" if self.raised is None else shown(self.raised)


def late_guards(captured: CapturedCode, known: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """What the backend assumed of symbolic sizes beyond what the trace did."""
    demands = tuple(captured.demands())
    seen = {(guard.source, guard.check) for guard in known} if demands else set()
    return tuple(Guard(*demand) for demand in demands if demand[:2] not in seen)


def has_tensors(draft: Draft) -> bool:
    """Whether there is anything to compile; numbers alone become symbolic by changing from call to call."""
    return draft.captured is not None and not computes_numbers_only(draft.captured)


def gets_tensors(frame: RealFrame) -> bool:
    return any(isinstance(value, torch.Tensor) for value in frame.arguments.values())
