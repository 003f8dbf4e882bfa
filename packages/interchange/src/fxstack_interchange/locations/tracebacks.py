"""Tracebacks of interpreted frames: real traceback objects that name the user's files, lines and
functions.

CPython makes tracebacks of real frames only. So each entry has the frame of a stub: a generator that is never
started, with the file name and function name of the user's code. (The frame of a function that was called
would keep its callers, and so all of the interpreter's frames, alive.)
"""

from __future__ import annotations

from collections.abc import Generator
from types import CodeType, FrameType, FunctionType, GeneratorType, TracebackType
from typing import cast

# Limits: the frames of these tracebacks are stubs. f_locals is empty, f_lineno is the first line of the
# function (tb_lineno is right), and columns are unknown.


def _never_started() -> Generator[None]:
    yield


class TracebackStub:
    """Creates one frame that stands for all frames of a code object. It does not keep the code object alive."""

    __slots__ = ("_generator", "_names")

    def __init__(self, code: CodeType) -> None:
        self._names = (code.co_filename, code.co_name, code.co_qualname, code.co_firstlineno)
        self._generator: GeneratorType[None, None, None] | None = None

    @property
    def frame(self) -> FrameType:
        """Return the frame. Create a new frame if ``traceback.clear_frames`` has finished the old one."""
        frame = None if self._generator is None else self._generator.gi_frame
        if frame is not None:
            return frame
        file, name, qualname, line = self._names
        stub = _never_started.__code__.replace(
            co_filename=file, co_name=name, co_qualname=qualname, co_firstlineno=line
        )
        self._generator = cast("GeneratorType[None, None, None]", FunctionType(stub, {})())
        return cast("FrameType", self._generator.gi_frame)


def is_stub(frame: FrameType) -> bool:
    """Whether ``frame`` is the frame of a ``TracebackStub``."""
    return frame.f_code.co_code == _never_started.__code__.co_code


def add_entry(following: TracebackType | None, stub: TracebackStub, line: int) -> TracebackType:
    """Return a traceback that begins with the frame of ``stub`` at ``line``.

    ``following``: the rest of the traceback, or None.
    """
    return TracebackType(following, stub.frame, -1, line)
