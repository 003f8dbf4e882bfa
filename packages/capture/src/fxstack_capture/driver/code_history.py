"""The history of each code object that ran under a compiler, as long as the code object lives.

The id of a code object is reused after its death, and programs that generate functions (``exec``, code
generators) would fill the table. The state is therefore deleted with its code object. Only the history of
shapes is kept, under the function's name, for the profile.
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

_REJECTIONS = 100


@dataclass(slots=True)
class CodeState:
    """The history of one code object."""

    history: FrameHistory = field(default_factory=FrameHistory)
    without_operations: int = 0
    entries: int = 0
    number: int | None = None
    """The first part of the ids of its compilations; None before the first one."""
    compilations: int = 0
    rejections: int = 0
    """How often guards have rejected the very frame that they were made for."""
    plain_calls: int = 0
    """How often it was postponed: run in plain Python for as long as something holds that will not hold for long."""
    plain_under_checkpoint: CodeType | None = None
    """The replacement, which is plain Python, that runs under checkpoints; see ``deferred_compilation``."""
    postponed: list[Any] = field(default_factory=list)
    """Entries that do so."""
    computes: bool = False
    """Whether a graph with tensors was captured from it, or from what follows a graph break in it."""
    met: bool = False
    """Whether it has been called under the stance ``eager_then_compile``."""

    def may_have_changed(self) -> bool:
        """Whether another thread may have changed objects during the trace.

        Then the next call compiles again.

        The number of such attempts is limited.
        """
        self.rejections += 1
        return threading.active_count() > 1 and self.rejections <= _REJECTIONS


@dataclass(slots=True)
class EqualCodes:
    """Code objects with equal contents: a program may make a function from the same source text in each call."""

    made: int = 0
    """How many of them the compiler has met."""
    alive: list[ref[CodeType]] = field(default_factory=list)
    is_told: bool = False
    """Whether a warning has said that they run in plain Python."""

    def add(self, code: ref[CodeType]) -> None:
        self.made += 1
        if self.is_told:  # nearly all of them run in plain Python, so their uses are not counted
            return
        self.alive = [known for known in self.alive if known() is not None] + [code]

    def usage(self, owner: object) -> tuple[int, int]:
        """The sums of ``native.usage``. Each code object but one counts as an entry that was lost."""
        uses, lost = 0, self.made - 1
        for code in filter(None, [known() for known in self.alive]):
            found = native.usage(code, owner)
            uses, lost = uses + found[0], lost + found[1]
        return uses, lost


@dataclass(frozen=True, slots=True)
class _Kept:
    """A state in the table. The callback of the weak reference ``code`` removes the state."""

    state: CodeState
    name: str
    code: ref[CodeType]


class CodeStates:
    """States by code object."""

    def __init__(self) -> None:
        self.profile = ShapeProfile()
        """What earlier processes saw of sizes and numbers."""
        self._states: dict[int, _Kept] = {}
        self._equal: dict[int, EqualCodes] = {}
        self._gone: list[ShapeProfile] = []

    def of(self, code: CodeType) -> CodeState:
        """The state of ``code``. A new state starts from the profile."""
        kept = self._states.get(id(code))
        if kept is None:
            name, key = key_of(code), id(code)
            reference = ref(code, lambda _: self._forget(key))
            kept = _Kept(CodeState(self.profile.history_of(code)), name, reference)
            self._states[key] = kept
            self.equal_to(code).add(reference)
        return kept.state

    def equal_to(self, code: CodeType) -> EqualCodes:
        """The record of the code objects that equal ``code``: the same name, instructions and constants."""
        return self._equal.setdefault(hash(code), EqualCodes())

    def _forget(self, key: int) -> None:
        kept = self._states.pop(key, None)
        if kept is not None:
            self._gone = [self.seen_in([kept]).merged(*self._gone)]

    def seen_in(self, states: list[_Kept]) -> ShapeProfile:
        """The profile of these states alone."""
        return ShapeProfile().merged(*(ShapeProfile({s.name: s.state.history}) for s in states))

    def seen(self) -> ShapeProfile:
        """The initial profile, merged with the shapes seen since."""
        return self.profile.merged(*self._gone, self.seen_in([*self._states.values()]))

    def clear(self) -> None:
        """Delete everything except the initial profile."""
        self._states.clear()
        self._equal.clear()
        self._gone.clear()

    def __len__(self) -> int:
        return len(self._states)
