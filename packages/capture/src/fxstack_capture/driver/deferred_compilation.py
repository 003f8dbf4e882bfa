"""Deferred compilation: frames that run in plain Python, with all calls in them, as long as a guard holds."""

from __future__ import annotations

from types import CodeType
from typing import Any

import torch

from fxstack_capture import native
from fxstack_capture.driver.code_history import CodeState
from fxstack_capture.driver.frame_policy.disabling import disabled_code
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.guards.records import Guard, TorchStateIs
from fxstack_capture.guards.torch_state import snapshot
from fxstack_capture.guards.tree import compile_guards
from fxstack_capture.sources import pinned
from fxstack_capture.torch_side.subclasses.suspended_modes import put_back


def postpone(owner: object, frame: RealFrame, code: CodeType, state: CodeState, until: Guard) -> Any:
    """Create an entry that runs the frame in plain Python as long as ``until`` holds."""
    replacement = disabled_code(frame, code)
    if is_under_checkpoint():
        return plain_under_checkpoint(owner, code, state, replacement)
    entry = native.Entry(owner, compile_guards((until,), code), replacement)
    state.postponed.append(entry)
    state.plain_calls += 1
    return entry


def end_postponement(code: CodeType, state: CodeState) -> None:
    """Remove the deferred entries.

    Their guards have rejected this call, which is therefore no recompilation.
    """
    while state.postponed:
        native.remove(code, state.postponed.pop())


def is_under_checkpoint() -> bool:
    """Whether a checkpoint around the compiled call exchanges the call's saved tensors with a later call's."""
    return bool(native.hooks() == "checkpoint")


def plain_under_checkpoint(owner: object, code: CodeType, state: CodeState, replacement: CodeType) -> Any:
    """Create an entry that runs ``replacement``, which is plain Python, from now on under all checkpoints.

    If only this call ran there, its recomputation could be compiled: side effects and first calls change guards.
    """
    state.plain_under_checkpoint = replacement
    return plain_again(owner, code, state)


def plain_again(owner: object, code: CodeType, state: CodeState) -> Any:
    """Return such an entry for a call under a checkpoint if an earlier one ran in plain Python, or None."""
    replacement = state.plain_under_checkpoint
    if replacement is None or not is_under_checkpoint():
        return None
    with put_back():
        guard = Guard(pinned(torch, "torch"), TorchStateIs(snapshot()))
    return native.Entry(owner, compile_guards((guard,), code), replacement)
