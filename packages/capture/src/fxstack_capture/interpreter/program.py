"""The decoded form of a code object: a list of steps, and tables about the steps. A step is a handler with
its operand.

A prefix instruction (EXTENDED_ARG, KW_NAMES, PRECALL) is merged into the next instruction. A step is
therefore a whole operation, and a frame can be stopped between any two steps. ``versions.decode`` makes
programs.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

from fxstack_capture.interpreter.binding import Signature
from fxstack_interchange.locations.tracebacks import TracebackStub

Handler = Callable[[Any, Any], int | None]
"""Executes one step. A handler takes an ``interpreter.frame.Frame`` and the operand.

Returns the index of the next step, None for the step that follows, or ``LEAVE`` to leave the frame.
"""
Step = tuple[Handler, Any]

ASYNC_FLAGS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

LEAVE = -1
"""Returned by handlers that leave the frame (return, yield). The value is on the stack."""


class Instead(partial[Any]):
    """A specialised handler that replaces the handler ``plain`` of one instruction.

    Code that analyses the steps of a program reads ``plain``.
    """

    plain: Handler

    @staticmethod
    def of(plain: Handler, function: Callable[..., int | None], *args: object) -> Instead:
        """Return ``function`` with its first arguments bound, as a replacement of the handler ``plain``."""
        handler = Instead(function, *args)
        handler.plain = plain
        return handler


@dataclass(frozen=True, slots=True)
class ExceptHandler:
    """Where execution continues if a step in a protected range raises: at the step with index ``target``.

    The first ``depth`` stack values stay. If ``lasti``, the offset of the step that raised is pushed. Then
    the exception is pushed.
    """

    target: int
    depth: int
    lasti: bool


@dataclass(frozen=True, slots=True)
class Receiver:
    """A ``with``, ``except`` or ``finally`` block of the program that receives an exception.

    ``target`` and ``depth`` are those of its ``ExceptHandler``. A ``with`` block keeps ``__exit__`` on top of
    the ``depth`` values.
    """

    target: int
    depth: int
    is_with: bool
    """Whether the block is a ``with`` block, whose ``__exit__`` may suppress the exception."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Differences between Python versions that programs can observe, besides opcodes."""

    throw_warns: bool
    """Whether ``generator.throw`` warns if it gets several arguments (from Python 3.12 on)."""
    close_returns_value: bool
    """Whether ``generator.close()`` returns the return value of the generator (from Python 3.13 on)."""
    clears_backwards: bool
    """Whether a frame that ends releases its last variable first (Python 3.14)."""
    counts_unpacked: bool
    """Whether the error for too many values to unpack states the length of a list, tuple or dict (Python 3.14)."""


@dataclass(frozen=True, slots=True)
class Program:
    """The decoded form of a code object. It does not keep the code object alive."""

    steps: tuple[Step, ...]
    """The operations of the code in order. ``Frame.pc`` is an index into them."""
    offsets: tuple[int, ...]
    """The bytecode offset where each step begins, prefixes included."""
    lines: tuple[int, ...]
    """The source line of each step."""
    handlers: tuple[ExceptHandler | None, ...]
    """The exception handler of each step, or None."""
    names: tuple[str, ...]
    """The names of the locals, cells and free variables, by slot."""
    cell_indices: frozenset[int]
    """The slots that hold cells."""
    signature: Signature
    """The parameters. They bind the arguments of a call."""
    delegations: Mapping[int, int | None]
    """The steps that are the yield of a ``yield from``, by index.

    In 3.11, the value is the index of the step where ``generator.throw`` continues if the inner iterator has
    returned. From 3.12 on, the bytecode does this itself, and the value is None.
    """
    behaviour: Behaviour
    """The behaviour of the Python version that the code was decoded for."""
    protects: bool
    """Whether any step has a handler."""
    receivers: Mapping[int, tuple[Receiver, ...]]
    """Maps the index of a step to the blocks that receive its exceptions: ``with`` blocks, then the first
    other block.
    """
    continues: bool
    """Whether the function is a resume function. Its variables may then be deferred locals."""
    ours: bool
    """Whether the function is a method of ``TraceGenerator``. Such a function is called, not interpreted."""
    library: bool
    """Whether the function is in the standard library. The graph then breaks at the program's call of the
    function.
    """
    hidden: bool
    """Whether the function is a polyfill: Python code that replaces C code and has no frame in tracebacks."""
    traceback_stub: TracebackStub
    """Makes traceback entries for the code. An entry names the file, the function and a line."""


class ProgramTable:
    """The decoded code objects, by identity. Many traces share the table. An entry dies with its code object."""

    def __init__(self, decode: Callable[[CodeType], Program]) -> None:
        self._decode = decode
        self._programs: dict[int, tuple[weakref.ref[CodeType], Program]] = {}

    def of(self, code: CodeType) -> Program:
        """Return the decoded program of a code object.

        The table refers to the code weakly. When the code object dies, its entry is removed.
        """
        entry = self._programs.get(id(code))
        if entry is not None:
            return entry[1]
        program = self._decode(code)
        key = id(code)
        self._programs[key] = (weakref.ref(code, lambda _: self._programs.pop(key, None)), program)
        return program

    def __len__(self) -> int:
        return len(self._programs)
