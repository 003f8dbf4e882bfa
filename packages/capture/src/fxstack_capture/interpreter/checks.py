"""Branches on a tensor's value with one side that only raises: ``if bad.any(): raise ...``, ``assert``.

Such a check need not break the graph. The trace assumes that the check passes, and the graph computes the
condition. The replacement code tests the condition before anything else happens. If the check fails, the
frame runs in plain Python from its beginning (``emit.endings.fallback``), which raises the program's
exception after the program's earlier side effects.
"""

from __future__ import annotations

import dis
from types import CodeType

import torch

from fxstack_capture.breaks import GraphBreak
from fxstack_capture.bytecode.exception_table import exception_regions
from fxstack_capture.interpreter.frame import Frame

# Limits: a check breaks the graph if the graph writes to its inputs, or if the graph runs on a GPU and
# indexes tensors or draws random numbers. If a check fails, the frame runs twice: the graph, then plain
# Python.

_MOST_INSTRUCTIONS = 200
_FORKS = ("JUMP", "RETURN", "YIELD", "FOR_ITER", "SEND", "RERAISE", "BEFORE_WITH", "LOAD_SPECIAL", "AWAIT")
_JUMPS = {"IF_TRUE": True, "IF_FALSE": False}


def truth_of_check(frame: Frame, value: object, jump: int) -> bool:
    """The truth of ``value`` for the jump at step ``jump``.

    If ``value`` is a tensor and one side of the jump only raises, the other side is assumed.

    Raises:
        GraphBreak: the value is not known, and both sides continue.
    """
    try:
        return frame.calls.truth(value)
    except GraphBreak:
        passing = _passing(frame, jump) if isinstance(value, torch.Tensor) else None
        if passing is None or not frame.interp.trace.torch.assume(value, truth=passing):
            raise
        return passing


def _passing(frame: Frame, jump: int) -> bool | None:
    """The truth with which the program continues; None if both sides continue or both sides only raise."""
    offsets, steps = frame.program.offsets, frame.program.steps
    if jump + 1 >= len(steps):
        return None
    jumps_when = _jumps_when(frame.code, offsets[jump])
    if jumps_when is None:
        return None
    handler = _handler_at(frame.code, offsets[jump])
    falls = _only_raises(frame.code, offsets[jump + 1], handler)
    jumps = _only_raises(frame.code, offsets[steps[jump][1]], handler)
    if falls == jumps:
        return None
    return jumps_when if falls else not jumps_when


def _jumps_when(code: CodeType, offset: int) -> bool | None:
    """The truth with which the instruction at ``offset`` jumps; None for other instructions."""
    for instruction in dis.get_instructions(code):
        if instruction.offset >= offset and instruction.opname != "EXTENDED_ARG":
            name = instruction.opname
            return next((truth for ending, truth in _JUMPS.items() if name.endswith(ending)), None)
    return None


def _handler_at(code: CodeType, offset: int) -> int | None:
    """The offset of the handler in ``code`` of an exception that is raised at ``offset``."""
    regions = (region for region in exception_regions(code) if region.start <= offset < region.end)
    return next((region.target for region in regions), None)


def _only_raises(code: CodeType, offset: int, handler: int | None) -> bool:
    """Whether execution at ``offset`` reaches a ``raise`` without a fork.

    No handler but ``handler`` may receive the exception.
    """
    left = _MOST_INSTRUCTIONS
    for instruction in dis.get_instructions(code):
        if instruction.offset < offset:
            continue
        left -= 1
        if instruction.opname == "RAISE_VARARGS":
            return _handler_at(code, instruction.offset) == handler
        if left == 0 or any(word in instruction.opname for word in _FORKS):
            return False
    return False
