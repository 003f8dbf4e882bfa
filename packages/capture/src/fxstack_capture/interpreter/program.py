"""A code object decoded once: a flat list of (handler, operand) steps, and what surrounds them.

Prefix instructions (EXTENDED_ARG, KW_NAMES, PRECALL) are merged into the instruction that they
belong to, so a step is always a whole operation: a frame can be stopped between any two steps.
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

Handler = Callable[[Any, Any], int | None]  # of an ``interpreter.frame.Frame`` and an operand
"""Executes one step; gives the index of the next step, None for the following one, ``LEAVE`` to
leave.
"""
Step = tuple[Handler, Any]
Lowering = Callable[["Instruction"], Step]

ASYNC_FLAGS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

LEAVE = -1
"""Returned by handlers that leave the frame (return, yield); the value is on the stack."""


class Instead(partial[Any]):
    """A handler in the place of another, ``plain``, of which it differs in what it looks at."""

    plain: Handler

    @staticmethod
    def of(plain: Handler, by: Callable[..., int | None], *args: object) -> Instead:
        """``by`` with its first arguments bound, for ``plain``."""
        made = Instead(by, *args)
        made.plain = plain
        return made


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the instructions of one code object have in common."""

    code: CodeType
    names: tuple[str, ...]
    """Names of the fast locals, cells and free variables."""
    indices: Mapping[int, int]
    """Step index of each instruction offset."""


class Instruction:
    """One instruction with its prefixes: what a lowering turns into a step.

    ``start`` is the offset of its first prefix, ``offset`` its own, ``following`` that of what
    comes after it and its cache entries (jumps are relative to this). ``keywords`` are the
    names that a KW_NAMES prefix gives; ``delegating`` marks a YIELD_VALUE that belongs to
    ``yield from``.
    """

    __slots__ = ("around", "delegating", "following", "keywords", "offset", "oparg", "opname", "start")

    def __init__(
        self,
        around: Surroundings,
        opname: str,
        oparg: int,
        extent: tuple[int, int, int],
        keywords: tuple[str, ...],
        *,
        delegating: bool,
    ) -> None:
        self.around = around
        self.opname = opname
        self.oparg = oparg
        self.start, self.offset, self.following = extent
        self.keywords = keywords
        self.delegating = delegating

    @property
    def code(self) -> CodeType:
        return self.around.code

    def jump(self, distance: int, skip: int = 0) -> int:
        """Index of the step ``distance`` code units away, plus ``skip`` steps."""
        return self.around.indices[self.following + 2 * distance] + skip


@dataclass(frozen=True, slots=True)
class ExceptHandler:
    """Where to go when a step raises: keep ``depth`` items, push the offset if ``lasti``, push the
    exception.
    """

    target: int
    depth: int
    lasti: bool


@dataclass(frozen=True, slots=True)
class Receiver:
    """A ``with``, ``except`` or ``finally`` block of the program that receives an exception. See ``ExceptHandler``.

    A ``with`` block keeps its ``__exit__`` on top of the ``depth`` items.
    """

    target: int
    depth: int
    is_with: bool


@dataclass(frozen=True, slots=True)
class Program:
    """The decoded form of a code object. It does not keep the code object alive."""

    steps: tuple[Step, ...]
    offsets: tuple[int, ...]
    """Bytecode offset where each step begins (prefixes included)."""
    lines: tuple[int, ...]
    handlers: tuple[ExceptHandler | None, ...]
    names: tuple[str, ...]
    cell_indices: frozenset[int]
    signature: Signature
    delegations: Mapping[int, int | None]
    """Steps that are the yield of a ``yield from``; see ``InstructionSet.throw_leaves_send``."""
    throw_warns: bool
    close_returns_value: bool
    clears_backwards: bool
    counts_unpacked: bool
    """See ``InstructionSet``."""
    protects: bool
    """Whether any step has a handler."""
    receivers: Mapping[int, tuple[Receiver, ...]]
    """What receives the exceptions of each step, innermost first: ``with`` blocks, and the first other block."""
    continues: bool
    """A function that continues a frame: its variables may hold what nobody has looked at."""
    ours: bool
    """A method of ``TraceGenerator``: not part of the program, so it is called, not interpreted."""
    library: bool
    """Python's standard library: a break in it ends the graph at the program's call of it."""
    hidden: bool
    """What stands for C code (``polyfill``): no frame of the program's."""
    traceback_stub: TracebackStub


class ProgramTable:
    """Decoded code objects by identity; owned by whoever makes interpreters. Entries die with their
    code.
    """

    def __init__(self, decode: Callable[[CodeType], Program]) -> None:
        self._decode = decode
        self._programs: dict[int, tuple[weakref.ref[CodeType], Program]] = {}

    def of(self, code: CodeType) -> Program:
        found = self._programs.get(id(code))
        if found is not None:
            return found[1]
        program = self._decode(code)
        key = id(code)
        self._programs[key] = (weakref.ref(code, lambda _: self._programs.pop(key, None)), program)
        return program

    def __len__(self) -> int:
        return len(self._programs)
