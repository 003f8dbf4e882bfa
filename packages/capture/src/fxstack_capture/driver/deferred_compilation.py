"""Deferred compilation: a frame and all calls in it run in plain Python as long as a guard holds."""

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


def defer(owner: object, frame: RealFrame, code: CodeType, state: CodeState, until: Guard) -> Any:
    """Create an entry that runs the frame in plain Python as long as ``until`` holds. ``FrameCompiler``
    returns it.

    For example, calls of a lazy module run in plain Python until its parameters exist.
    """
    replacement = disabled_code(frame, code)
    if is_under_checkpoint():
        return plain_under_checkpoint(owner, code, state, replacement)
    entry = native.Entry(owner, compile_guards((until,), code), replacement)
    state.deferred.append(entry)
    state.plain_calls += 1
    return entry


def remove_deferring_entries(code: CodeType, state: CodeState) -> None:
    """Remove the entries that defer compilation. Called whenever no entry accepts a frame.

    The guards of these entries have rejected this call. Its compilation must not count as a recompilation.
    """
    while state.deferred:
        native.remove(code, state.deferred.pop())


def is_under_checkpoint() -> bool:
    """Whether the compiled call runs inside a checkpoint. A checkpoint calls the function again in the
    backward.
    """
    return bool(native.hooks() == "checkpoint")


def plain_under_checkpoint(owner: object, code: CodeType, state: CodeState, replacement: CodeType) -> Any:
    """Create an entry that runs ``replacement``, which is plain Python, in all calls under checkpoints.

    All of them must do so. If only this call ran in plain Python, its recomputation could be compiled,
    because side effects and first calls change guards. The saved tensors would then differ.
    """
    state.plain_under_checkpoint = replacement
    return entry_under_checkpoint(owner, code, state)


def entry_under_checkpoint(owner: object, code: CodeType, state: CodeState) -> Any:
    """Return a new entry that runs plain Python, if an earlier call under a checkpoint ran plain Python.
    Otherwise None.

    ``FrameCompiler`` calls this before it compiles a frame. Outside of checkpoints the result is None.
    """
    replacement = state.plain_under_checkpoint
    if replacement is None or not is_under_checkpoint():
        return None
    with put_back():
        guard = Guard(pinned(torch, "torch"), TorchStateIs(snapshot()))
    return native.Entry(owner, compile_guards((guard,), code), replacement)
