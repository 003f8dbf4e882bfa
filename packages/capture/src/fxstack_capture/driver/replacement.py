"""The draft of a frame's replacement code, with the data from the trace."""

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
    """The draft of a frame's replacement code, and the results of the trace."""

    draft: Draft | None
    guards: tuple[Guard, ...]
    graph_break: BreakRecord | None
    raised: BaseException | None = None

    @property
    def error(self) -> str:
        """The exception with which the trace ended, as text."""
        return "" if self.raised is None else shown(self.raised)


def late_guards(captured: CapturedCode, known: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """Guards on symbolic sizes that the backend added to the guards of the trace."""
    demands = tuple(captured.demands())
    seen = {(guard.source, guard.check) for guard in known} if demands else set()
    return tuple(Guard(*demand) for demand in demands if demand[:2] not in seen)


def has_tensors(draft: Draft) -> bool:
    """Whether the graph computes more than numbers.

    Numbers alone give no reason to compile: a number becomes symbolic when it changes between calls.
    """
    return draft.captured is not None and not computes_numbers_only(draft.captured)


def gets_tensors(frame: RealFrame) -> bool:
    return any(isinstance(value, torch.Tensor) for value in frame.arguments.values())
