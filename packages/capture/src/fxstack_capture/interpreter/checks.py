"""Branches on the value of a tensor of which one side does nothing but raise: ``if bad.any(): raise ...``, ``assert``.

Such a check need not end the graph. The trace goes on as if it passed, the graph computes whether it does, and the
frame's replacement looks before anything else happens; if it did not, the frame runs in plain Python from its
beginning (``emit.endings.fallback``), which raises what the program raises, with whatever comes before it.
"""

from __future__ import annotations

import dis
from types import CodeType

import torch

from fxstack_capture.breaks import GraphBreak
from fxstack_capture.bytecode.exception_table import exception_regions
from fxstack_capture.interpreter.frame import Frame

# Limits: a check ends the graph if the graph writes to its inputs, or if it runs on a GPU and indexes tensors
# or draws random numbers. If a check fails, the frame runs twice: the graph, then plain Python.

_MOST_INSTRUCTIONS = 200
_FORKS = ("JUMP", "RETURN", "YIELD", "FOR_ITER", "SEND", "RERAISE", "BEFORE_WITH", "LOAD_SPECIAL", "AWAIT")
_JUMPS = {"IF_TRUE": True, "IF_FALSE": False}


def truth_of_check(frame: Frame, value: object, jump: int) -> bool:
    """The truth of ``value`` for the jump at step ``jump``; assumed, where that is a tensor's and the other raises.

    Raises:
        GraphBreak: the value is not known, and both sides go on.
    """
    try:
        return frame.calls.truth(value)
    except GraphBreak:
        passing = _passing(frame, jump) if isinstance(value, torch.Tensor) else None
        if passing is None or not frame.interp.trace.torch.assume(value, truth=passing):
            raise
        return passing


def _passing(frame: Frame, jump: int) -> bool | None:
    """The truth with which the program goes on; None if it does with both, or with neither."""
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
    """The truth with which the instruction at ``offset`` jumps; None if that is no jump on a truth."""
    for instruction in dis.get_instructions(code):
        if instruction.offset >= offset and instruction.opname != "EXTENDED_ARG":
            name = instruction.opname
            return next((truth for ending, truth in _JUMPS.items() if name.endswith(ending)), None)
    return None


def _handler_at(code: CodeType, offset: int) -> int | None:
    """Where an exception raised at ``offset`` is handled in ``code``."""
    regions = (region for region in exception_regions(code) if region.start <= offset < region.end)
    return next((region.target for region in regions), None)


def _only_raises(code: CodeType, offset: int, handler: int | None) -> bool:
    """Whether execution at ``offset`` leads to a ``raise`` that no handler but ``handler`` gets, without a fork on its way."""
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
