"""Frames that are not traced yet: they run as they are, with all that they call, for as long as something holds."""

from __future__ import annotations

from types import CodeType
from typing import Any

from fxstack_capture import native
from fxstack_capture.driver.frame_policy.disabling import disabled_code
from fxstack_capture.driver.states import CodeState
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.guards.records import Guard
from fxstack_capture.guards.tree import compile_guards


def postpone(owner: object, frame: RealFrame, code: CodeType, state: CodeState, until: Guard) -> Any:
    """An entry that runs the frame in plain Python for as long as ``until`` holds."""
    entry = native.Entry(owner, compile_guards((until,), code), disabled_code(frame, code))
    state.postponed.append(entry)
    state.plain_calls += 1
    return entry


def end_postponement(code: CodeType, state: CodeState) -> None:
    """Forget such entries, which have rejected this call: it is no recompilation."""
    while state.postponed:
        native.remove(code, state.postponed.pop())
