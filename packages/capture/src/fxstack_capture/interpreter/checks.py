"""Checks: branches on a tensor's value whose one side only raises, such as ``if bad.any(): raise ...`` and
``assert``.

Another function may compute the condition (``if not valid(x): raise ...``). The condition may pass through
``not``, ``and``, ``or`` and local variables. A check need not break the graph. The trace assumes that the
check passes, and the graph computes the condition. The replacement code tests the condition before it does
anything else. If the check fails, plain Python runs the frame from its beginning (``emit.endings.fallback``).
It repeats the program's earlier side effects and then raises the program's exception.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch

from fxstack_capture.breaks import GraphBreak
from fxstack_capture.bytecode.exception_table import exception_regions
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.trace.records import NOTHING
from fxstack_interchange.bytecode import Kind, kind_of

# Limits: in two cases a check breaks the graph. The graph writes to its inputs (with several checks, the
# write breaks the graph instead). Or the graph is on a GPU, and indexes tensors or draws random numbers. If a
# check fails, the frame runs twice: first the graph, then plain Python.

_MOST_INSTRUCTIONS = 200
_JUMPS = Kind.JUMPS | Kind.JUMPS_IF_TRUE | Kind.JUMPS_IF_FALSE
_FORKS = Kind.FORKS | Kind.RERAISES | Kind.STARTS_GENERATOR
_UNKNOWN = object()


def truth_of_check(frame: Frame, value: object, step: int) -> bool:
    """Return the truth of ``value``, for the steps that jump on a condition or negate it, and for
    ``bool(x)``.

    ``value`` is on top of the stack when the step with index ``step`` begins. If ``value`` is a tensor and
    exactly one truth leads to a ``raise``, the trace assumes the other truth.

    Raises:
        GraphBreak: ``value`` has no known truth, and the program can continue with both truths.
    """
    try:
        return frame.calls.truth(value)
    except GraphBreak:
        if not isinstance(value, torch.Tensor):
            raise
        raising = [truth for truth in (False, True) if _only_raises(frame, step, value=truth)]
        if len(raising) != 1 or not frame.interp.trace.torch.assume(value, truth=not raising[0]):
            raise
        return not raising[0]


def _only_raises(frame: Frame | None, step: int, *, value: Any) -> bool:
    """Return whether the program must reach a ``raise`` if it continues with ``value``.

    It continues at the step with index ``step``, with ``value`` (True or False) on top of the stack.
    """
    while frame is not None and step < len(frame.program.steps):
        path = _Path(frame.code, frame.program.offsets[step], value)
        if path.follow():
            return True
        value = path.result
        if value is _UNKNOWN or not _goes_to_caller(frame):
            return False
        frame = frame.back
        step = 0 if frame is None else frame.pc + 1
    return False


def _goes_to_caller(frame: Frame) -> bool:
    """Return whether the caller's next step gets the value that ``frame`` returns or yields.

    The value is then on top of the caller's stack.
    """
    if frame.link is not None:
        return frame.link.made is NOTHING
    back = frame.back
    if back is None:
        return False
    return Kind.ITERATES in kind_of(dis.opname[back.code.co_code[back.program.offsets[back.pc]]])


class _Path:
    """The instructions that run from ``offset`` on, with ``value`` on top of the stack at the start.

    ``stack`` has the known values on top of the stack, and ``variables`` has the known local variables.
    ``result`` is the value that the code returns or yields, if it is known.
    """

    def __init__(self, code: CodeType, offset: int, value: object) -> None:
        self.code, self.offset = code, offset
        self.handler = _handler_at(code, offset)
        self.stack = [value, value] if _copies_before(code, offset) else [value]
        self.variables: dict[str, object] = {}
        self.result: object = _UNKNOWN

    def follow(self) -> bool:
        """Return whether the path reaches a ``raise`` without a branch on an unknown value.

        The ``raise`` must have the same exception handler as the first instruction, or both have none.
        """
        instructions = _from(self.code, self.offset)
        for _ in range(_MOST_INSTRUCTIONS):
            instruction = next(instructions, None)
            if instruction is None:
                return False
            kind = kind_of(instruction.opname)
            if Kind.RAISES in kind:
                return _handler_at(self.code, instruction.offset) == self.handler
            if kind & (Kind.RETURNS | Kind.YIELDS):
                self.result = instruction.argval if Kind.LOADS_CONSTANT in kind else self._pop()
                return False
            if kind & _JUMPS:
                target = self._jump(instruction)
                if target is _UNKNOWN:
                    return False
                if target is not None:
                    instructions = _from(self.code, target)
            elif kind & _FORKS:
                return False
            else:
                self._run(instruction, kind)
        return False

    def _jump(self, instruction: dis.Instruction) -> Any:
        """Return the bytecode offset where a jump leads, or None if the jump is not taken.

        ``_UNKNOWN`` ends the path: the condition is unknown, or the jump leads backward.
        """
        kind = kind_of(instruction.opname)
        if Kind.JUMPS in kind:
            return instruction.argval if instruction.argval > instruction.offset else _UNKNOWN
        value = self._pop()
        if type(value) is not bool:
            return _UNKNOWN
        taken = value is (Kind.JUMPS_IF_TRUE in kind)
        if taken and Kind.KEEPS_CONDITION in kind:
            self.stack.append(value)
        return instruction.argval if taken else None

    def _run(self, instruction: dis.Instruction, kind: Kind) -> None:
        """Simulate one instruction on ``stack`` and ``variables``.

        An instruction that is not listed here empties ``stack``, so all values become unknown.
        """
        if Kind.INERT in kind:
            return
        if Kind.NEGATES in kind:
            value = self._pop()
            self.stack.append(not value if type(value) is bool else _UNKNOWN)
        elif Kind.COPIES in kind and instruction.arg == 1 and self.stack:
            self.stack.append(self.stack[-1])
        elif Kind.LOADS_CONSTANT in kind:
            self.stack.append(instruction.argval)
        elif kind is Kind.READS_LOCAL:
            self.stack.append(self.variables.get(instruction.argval, _UNKNOWN))
        elif kind is Kind.BINDS_LOCAL:
            self.variables[instruction.argval] = self._pop()
        elif Kind.POPS in kind:
            self._pop()
        else:
            self.stack.clear()

    def _pop(self) -> object:
        """Pop ``stack``. Return ``_UNKNOWN`` for a value that was pushed before the path began."""
        return self.stack.pop() if self.stack else _UNKNOWN


def _copies_before(code: CodeType, offset: int) -> bool:
    """Return whether the instruction before ``offset`` copied the top value, as ``ok = a and b`` does."""
    earlier = [(kind_of(i.opname), i.arg) for i in dis.get_instructions(code) if i.offset < offset]
    before = [step for step in earlier if Kind.INERT not in step[0]]
    return before[-1:] == [(Kind.COPIES, 1)]


def _from(code: CodeType, offset: int) -> Iterator[dis.Instruction]:
    """Return the instructions of ``code`` at ``offset`` and after it."""
    return (instruction for instruction in dis.get_instructions(code) if instruction.offset >= offset)


def _handler_at(code: CodeType, offset: int) -> int | None:
    """Return the bytecode offset of the handler for an exception raised at ``offset``, or None."""
    regions = (region for region in exception_regions(code) if region.start <= offset < region.end)
    return next((region.target for region in regions), None)
