"""Passes as data: a stage is a tuple of named passes, which ``run_passes`` runs in order and shows to observers."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter  # the program may replace the function of the module
from typing import Final, Generic, Protocol, TypeVar, runtime_checkable

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The result of a pass that does not change the state, with the reason."""

    why: str


@dataclass(frozen=True, slots=True)
class Pass(Generic[State]):
    """One step of a stage: ``run`` returns the next state, or ``NothingToDo``.

    The docstring of ``run`` begins with the sentence that lists show. The docstring also has an example
    (``>>>`` lines): a graph, or another state, before and after the pass.
    """

    name: str
    run: Callable[[State], State | NothingToDo]

    @property
    def sentence(self) -> str:
        """Return the first sentence of the docstring of ``run``."""
        return inspect.cleandoc(self.run.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


@dataclass(frozen=True, slots=True)
class PassDone:
    """One run of a pass. ``why``: the reason if the pass changed nothing, else None.

    ``subject``: the function that is compiled, see ``working_on``.

    ``text`` returns the state after the pass as code. Call it in ``on_pass``: a later pass may change the graph.
    """

    subject: str
    stage: str
    """The name of the stage, for example ``partition``."""
    name: str
    seconds: float
    why: str | None
    text: Callable[[], str]


class PassObserver(Protocol):
    """An object whose ``on_pass`` is called after each pass. It may raise ``StoppedAfterPass``."""

    def on_pass(self, done: PassDone) -> None: ...


@runtime_checkable
class StageObserver(PassObserver, Protocol):
    """An observer whose ``on_stage`` is also called before the first pass of each stage."""

    def on_stage(self, stage: str, text: Callable[[], str]) -> None: ...


class StoppedAfterPass(Exception):  # noqa: N818 - no error: an observer requested it
    """An observer has ended a stage after a pass. The rest of the pipeline is skipped, and the call runs in eager."""


_OBSERVERS: Final[list[PassObserver]] = []
_CURRENT: Final = threading.local()


@contextmanager
def working_on(subject: str) -> Iterator[None]:
    """Set the subject of the passes in the context: the compiled function, with its file and line."""
    before = getattr(_CURRENT, "subject", "")
    _CURRENT.subject = subject
    try:
        yield
    finally:
        _CURRENT.subject = before


@contextmanager
def observed(observer: PassObserver) -> Iterator[None]:
    """Show the passes that run in the context to ``observer``. Contexts may be nested."""
    _OBSERVERS.append(observer)
    try:
        yield
    finally:
        _OBSERVERS.remove(observer)


def observe(observer: PassObserver) -> None:
    """Show all passes of the process to ``observer``."""
    _OBSERVERS.append(observer)


def run_passes(
    stage: str, passes: tuple[Pass[State], ...], state: State, text: Callable[[State], str]
) -> State:
    """Run ``passes`` in order and return the last state. ``text`` renders a state as readable code.

    Raises:
        StoppedAfterPass: if an observer ends the stage.
    """
    for observer in tuple(_OBSERVERS):
        if isinstance(observer, StageObserver):
            observer.on_stage(stage, _text(text, state))
    for step in passes:
        start = perf_counter()
        after = step.run(state)
        why = after.why if isinstance(after, NothingToDo) else None
        state = state if isinstance(after, NothingToDo) else after
        if _OBSERVERS:
            seconds, subject = perf_counter() - start, getattr(_CURRENT, "subject", "")
            _notify(PassDone(subject, stage, step.name, seconds, why, _text(text, state)))
    return state


def _text(text: Callable[[State], str], state: State) -> Callable[[], str]:
    """Return a function that prints the present ``state``. A lambda in the loop would print the last state."""
    return lambda: text(state)


def _notify(done: PassDone) -> None:
    for observer in tuple(_OBSERVERS):
        observer.on_pass(done)
