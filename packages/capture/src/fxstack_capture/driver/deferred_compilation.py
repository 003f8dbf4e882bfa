"""Deferred compilation: frames that run in plain Python, with all calls in them, as long as a guard holds."""

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
    """Create an entry that runs the frame in plain Python as long as ``until`` holds."""
    entry = native.Entry(owner, compile_guards((until,), code), disabled_code(frame, code))
    state.postponed.append(entry)
    state.plain_calls += 1
    return entry


def end_postponement(code: CodeType, state: CodeState) -> None:
    """Remove the deferred entries.

    Their guards have rejected this call, which is therefore no recompilation.
    """
    while state.postponed:
        native.remove(code, state.postponed.pop())
