"""Branches on a tensor's value with one side that only raises: ``if bad.any(): raise ...``, ``assert``.

The truth may come from another function (``if not valid(x): raise ...``), and may pass through ``not``, ``and``,
``or`` and local variables. Such a check need not break the graph. The trace assumes that the check passes, and
the graph computes the condition. The replacement code tests the condition before anything else happens. If the
check fails, the frame runs in plain Python from its beginning (``emit.endings.fallback``), which raises the
program's exception after the program's earlier side effects.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

import torch

from fxstack_capture.breaks import GraphBreak
from fxstack_capture.bytecode.exception_table import exception_regions
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.trace.records import NOTHING

# Limits: a check (of several: the write) breaks a graph that writes to its inputs, or that is on a GPU and
# indexes tensors or draws random numbers. If a check fails, the frame runs twice: the graph, then plain
# Python.

_MOST_INSTRUCTIONS = 200
_FORKS = ("JUMP", "RETURN", "YIELD", "FOR_ITER", "SEND", "RERAISE", "BEFORE_WITH", "LOAD_SPECIAL", "AWAIT")
_WITHOUT_EFFECT = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PRECALL", "RESUME", "TO_BOOL"})
_JUMPS: Mapping[str, bool] = {"JUMP_IF_TRUE": True, "JUMP_IF_FALSE": False}
_ITERATES = frozenset({dis.opmap["FOR_ITER"]})
_UNKNOWN = object()


def truth_of_check(frame: Frame, value: object, step: int) -> bool:
    """The truth of ``value``, which is on top of the stack of ``frame`` when ``step`` begins.

    If ``value`` is a tensor and one truth only leads to a ``raise``, the other one is assumed.

    Raises:
        GraphBreak: the value is not known, and both truths continue.
    """
    try:
        return frame.calls.truth(value)
    except GraphBreak:
        if not isinstance(value, torch.Tensor):
            raise
        raising = [truth for truth in (False, True) if _only_raises(frame, step, known=truth)]
        if len(raising) != 1 or not frame.interp.trace.torch.assume(value, truth=not raising[0]):
            raise
        return not raising[0]


def _only_raises(frame: Frame | None, step: int, *, known: Any) -> bool:
    """Whether execution from ``step`` on, with a known value on top of the stack, reaches a ``raise``."""
    while frame is not None and step < len(frame.program.steps):
        path = _Path(frame.code, frame.program.offsets[step], known)
        if path.follow():
            return True
        known = path.result
        if known is _UNKNOWN or not _goes_to_caller(frame):
            return False
        frame = frame.back
        step = 0 if frame is None else frame.pc + 1
    return False


def _goes_to_caller(frame: Frame) -> bool:
    """Whether what ``frame`` returns or yields is on top of its caller's stack afterwards."""
    if frame.link is not None:
        return frame.link.made is NOTHING
    back = frame.back
    return back is not None and back.code.co_code[back.program.offsets[back.pc]] in _ITERATES


class _Path:
    """The instructions of one code object that run if the value on top of the stack is ``known``.

    ``stack`` has the known values on top of the stack; ``variables`` the known local variables. ``result`` is
    the value that the code returns or yields, if it is known.
    """

    def __init__(self, code: CodeType, offset: int, known: object) -> None:
        self.code, self.offset = code, offset
        self.handler = _handler_at(code, offset)
        self.stack = [known, known] if _copies_before(code, offset) else [known]
        self.variables: dict[str, object] = {}
        self.result: object = _UNKNOWN

    def follow(self) -> bool:
        """Whether the path reaches a ``raise`` without another fork.

        No handler but that of the beginning may receive the exception.
        """
        instructions = _from(self.code, self.offset)
        for _ in range(_MOST_INSTRUCTIONS):
            instruction = next(instructions, None)
            if instruction is None:
                return False
            name = instruction.opname
            if name == "RAISE_VARARGS":
                return _handler_at(self.code, instruction.offset) == self.handler
            if name in ("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE"):
                self.result = instruction.argval if name == "RETURN_CONST" else self._pop()
                return False
            if "JUMP" in name:
                target = self._jump(instruction)
                if target is _UNKNOWN:
                    return False
                if target is not None:
                    instructions = _from(self.code, target)
            elif any(word in name for word in _FORKS):
                return False
            else:
                self._run(instruction)
        return False

    def _jump(self, instruction: dis.Instruction) -> Any:
        """The offset of the next instruction; None if the jump is not taken."""
        name = instruction.opname
        if "IF" not in name:
            return _UNKNOWN if "BACKWARD" in name else instruction.argval
        known = self._pop()
        plain = name.replace("FORWARD_", "").replace("BACKWARD_", "")
        asked = next((truth for part, truth in _JUMPS.items() if part in plain), None)
        if asked is None or type(known) is not bool:
            return _UNKNOWN
        taken = known is asked
        if taken and name.endswith("OR_POP"):
            self.stack.append(known)
        return instruction.argval if taken else None

    def _run(self, instruction: dis.Instruction) -> None:
        name, variables = instruction.opname, self.variables
        if name in _WITHOUT_EFFECT:
            return
        if name == "UNARY_NOT":
            value = self._pop()
            self.stack.append(not value if type(value) is bool else _UNKNOWN)
        elif name == "COPY" and instruction.arg == 1 and self.stack:
            self.stack.append(self.stack[-1])
        elif name == "LOAD_CONST":
            self.stack.append(instruction.argval)
        elif name in ("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"):
            self.stack.append(variables.get(instruction.argval, _UNKNOWN))
        elif name == "STORE_FAST":
            variables[instruction.argval] = self._pop()
        elif name == "POP_TOP":
            self._pop()
        else:
            self.stack.clear()

    def _pop(self) -> object:
        return self.stack.pop() if self.stack else _UNKNOWN


def _copies_before(code: CodeType, offset: int) -> bool:
    """Whether the value on top of the stack at ``offset`` is a copy of the value below: ``ok = a and b``."""
    before = [i for i in dis.get_instructions(code) if i.offset < offset and i.opname not in _WITHOUT_EFFECT]
    return bool(before) and before[-1].opname == "COPY" and before[-1].arg == 1


def _from(code: CodeType, offset: int) -> Iterator[dis.Instruction]:
    return (instruction for instruction in dis.get_instructions(code) if instruction.offset >= offset)


def _handler_at(code: CodeType, offset: int) -> int | None:
    """The offset of the handler in ``code`` of an exception that is raised at ``offset``."""
    regions = (region for region in exception_regions(code) if region.start <= offset < region.end)
    return next((region.target for region in regions), None)
