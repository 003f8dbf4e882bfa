"""The history of each code object that ran under a compiler. It lives as long as the code object.

The history is deleted with its code object, for two reasons: the id of a dead code object is reused, and
programs that generate functions (``exec``, code generators) would fill the table. Only the shapes are kept,
under the name of the function, for the profile.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import CodeType
from typing import Any
from weakref import ref

from fxstack_capture import native
from fxstack_capture.shapes.history import FrameHistory
from fxstack_capture.shapes.profile import ShapeProfile, key_of

_MAX_REJECTIONS = 100


@dataclass(slots=True)
class CodeState:
    """The history of one code object."""

    history: FrameHistory = field(default_factory=FrameHistory)
    """The sizes and numbers that calls of the code have had."""
    without_operations: int = 0
    """Number of traces that recorded no torch operation."""
    entries: int = 0
    """Number of entries that were made for the code. Removed entries count."""
    number: int | None = None
    """The first part of the ids of the code's compilations, for example the 3 of "3/0". None before the
    first.
    """
    compilations: int = 0
    """The second part of the id of the next compilation, for example the 0 of "3/0"."""
    rejections: int = 0
    """Number of traces whose guards rejected the traced frame itself."""
    plain_calls: int = 0
    """Number of times that compilation of this code was deferred (see ``deferred_compilation``)."""
    plain_under_checkpoint: CodeType | None = None
    """The plain Python code that runs under checkpoints (see ``deferred_compilation``), or None."""
    deferred: list[Any] = field(default_factory=list)
    """Entries that only defer compilation. They are removed before the code is compiled."""
    computes: bool = False
    """Whether this code, or a resume function of this code, has had a graph with tensors."""
    met: bool = False
    """Whether the code has been called under the stance ``eager_then_compile``."""

    def may_have_changed(self) -> bool:
        """Count a trace whose guards reject the traced frame. Return whether another thread may be the cause.

        Another thread may have changed objects during the trace. Then the next call compiles again, at most
        ``_MAX_REJECTIONS`` times. Without another thread, the rejection is an error of the compiler.
        """
        self.rejections += 1
        return threading.active_count() > 1 and self.rejections <= _MAX_REJECTIONS


@dataclass(slots=True)
class EqualCodes:
    """A group of code objects with equal contents.

    A program may make a function from the same source text in each call.
    """

    count: int = 0
    """Number of code objects in the group that the compiler has seen. Dead code objects count."""
    alive: list[ref[CodeType]] = field(default_factory=list)
    """Weak references to the code objects of the group. Dead ones were removed when the last was added."""
    has_warned: bool = False
    """Whether the user has been warned that functions with this code run in plain Python."""

    def add(self, code: ref[CodeType]) -> None:
        """Count a code object that the compiler sees for the first time."""
        self.count += 1
        if self.has_warned:  # nearly all calls now run in plain Python, so the uses of entries do not matter
            return
        self.alive = [known for known in self.alive if known() is not None] + [code]

    def usage(self, owner: object) -> tuple[int, int]:
        """Return two numbers: how often entries of these code objects were used, and how many entries were
        lost.

        The result is an argument of ``exceeded_limit``. ``owner`` is the compiler's. Every code object except
        one counts as a lost entry, because its entries died with it.
        """
        uses, lost = 0, self.count - 1
        for code in filter(None, [known() for known in self.alive]):
            counts = native.usage(code, owner)
            uses, lost = uses + counts[0], lost + counts[1]
        return uses, lost


@dataclass(frozen=True, slots=True)
class _StateOfLiveCode:
    """The state of a live code object in the table. When the code object dies, the callback of ``code``
    removes the state.
    """

    state: CodeState
    """The history of the code object."""
    name: str
    """The name of the function in the profile."""
    code: ref[CodeType]
    """A weak reference to the code object."""


class CodeStates:
    """The histories of all code objects of one compiler, by the id of the code object."""

    def __init__(self) -> None:
        self.profile = ShapeProfile()
        """The sizes and numbers that earlier processes have seen."""
        self._states: dict[int, _StateOfLiveCode] = {}
        self._equal: dict[int, EqualCodes] = {}
        self._of_dead_code: list[ShapeProfile] = []

    def of(self, code: CodeType) -> CodeState:
        """Return the history of ``code``. The first call makes a history with the sizes from the profile."""
        entry = self._states.get(id(code))
        if entry is None:
            name, key = key_of(code), id(code)
            reference = ref(code, lambda _: self._forget(key))
            entry = _StateOfLiveCode(CodeState(self.profile.history_of(code)), name, reference)
            self._states[key] = entry
            self.equal_to(code).add(reference)
        return entry.state

    def equal_to(self, code: CodeType) -> EqualCodes:
        """Return the record of the code objects that equal ``code``: with the same name, instructions and
        constants.
        """
        return self._equal.setdefault(hash(code), EqualCodes())

    def _forget(self, key: int) -> None:
        """Delete the state of a dead code object, and keep its shapes for the profile.

        The callback of a weak reference calls this method.
        """
        entry = self._states.pop(key, None)
        if entry is not None:
            self._of_dead_code = [self.seen_in([entry]).merged(*self._of_dead_code)]

    def seen_in(self, states: list[_StateOfLiveCode]) -> ShapeProfile:
        """Return a profile of the shapes in ``states``, by the names of the functions."""
        return ShapeProfile().merged(*(ShapeProfile({s.name: s.state.history}) for s in states))

    def seen(self) -> ShapeProfile:
        """Return the initial profile merged with the shapes of this process.

        ``profile_of`` calls this method.
        """
        return self.profile.merged(*self._of_dead_code, self.seen_in([*self._states.values()]))

    def clear(self) -> None:
        """Delete everything but the initial profile."""
        self._states.clear()
        self._equal.clear()
        self._of_dead_code.clear()

    def __len__(self) -> int:
        return len(self._states)
