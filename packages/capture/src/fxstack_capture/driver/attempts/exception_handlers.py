"""Decide which handlers of a program would act on an error that a graph raises when it runs.

A graph that has written to its inputs cannot be undone, so an error of the graph leaves the frame at once.
This is correct only where the program's handlers let the error through and leave everything as the graph
found it. Such handlers are ``finally`` blocks that restore attributes, ``except`` clauses for other errors,
and contexts that set a flag. To find out, the frame is traced once more, and a call of the graph raises an
error in this trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import fx

from fxstack_capture.driver.attempts.attempt import attempt
from fxstack_capture.emit.resolve import resolve
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.trace.effect_diff import diff
from fxstack_capture.trace.effects import DictSet, Effect, Effects
from fxstack_capture.trace.records import Blocks, Raised, RootOutcome
from fxstack_capture.trace.state import Trace


class _DataError(torch.linalg.LinAlgError, IndexError, ValueError):
    """An error that matches every ``except`` clause for errors that operators raise because of their data."""


_PLAIN = (IndexError, RuntimeError)
"""The classes of most such errors. A handler may compare the class exactly (``kind is IndexError``)."""


def passing(
    calls: dict[Blocks, tuple[int, int]], frame: RealFrame, new_trace: Callable[[], Trace]
) -> frozenset[Blocks]:
    """Return the blocks that do not act on errors of their first and their last call.

    Called after an attempt has ended with ``HandlerSees``. ``calls`` maps the blocks to the numbers of these
    two calls. Each test of a call traces the frame once more.
    """
    return frozenset(
        blocks
        for blocks, (first, last) in calls.items()
        if _passes(last, _DataError, frame, new_trace())
        and all(_passes(first, kind, frame, new_trace()) for kind in (_DataError, *_PLAIN))
    )


def _passes(number: int, kind: type[Exception], frame: RealFrame, trace: Trace) -> bool:
    """Whether an error of class ``kind`` leaves the frame if the call with this number raises it.

    The program's handlers may undo side effects. If they do anything else, the answer is False.
    """
    trial = _Trial(number, kind("an operator refuses the data of its tensors"), frame, trace)
    trace.call_raises = trial.next_call
    passes = attempt(frame, trace, trial.passes) is True
    trace.call_raises = lambda: (
        None
    )  # the trace and the trial refer to each other, and the trial to the arguments
    return passes


class _Trial:
    """One trace in which the call with a given number raises ``error``. The program's handlers then run."""

    def __init__(self, number: int, error: Exception, frame: RealFrame, trace: Trace) -> None:
        self._left = number
        self._frame = frame
        self._trace = trace
        self._error = error
        self._effects = Effects(())
        self._operators: frozenset[fx.Node] = frozenset()
        self._recorded = 0, 0

    def next_call(self) -> BaseException | None:
        """Return the error that the next call of the graph raises, or None. The trace asks before each call.

        When the error is returned, the state of the program is recorded.
        """
        self._left -= 1
        if self._left:
            return None
        self._effects, self._recorded = diff(self._trace.objects), self._count()
        self._operators = self._trace.torch.assumptions.operators
        self._trace.trial_error = self._error
        return self._error

    def passes(self, end: RootOutcome) -> bool:
        """Whether the error has left the frame, and the handlers did nothing else. ``attempt`` calls this at
        the end.
        """
        return isinstance(end, Raised) and self.is_unchanged(end.exception)

    def is_unchanged(self, error: BaseException) -> bool:
        """Whether ``error`` is the unchanged error of the call, and the program has had no side effect since
        then.
        """
        if error is not self._error or error.__cause__ is not None or vars(error) or len(error.args) != 1:
            return False
        if self._trace.torch.state_delta() or self._count() != self._recorded:
            return False
        if (
            self._trace.torch.assumptions.operators - self._operators
        ):  # the nodes of a nested function may be removed
            return False
        after = Effects(tuple(r for r in diff(self._trace.objects) if not _restores(r, self._frame)))
        return not Counter(after.identity()) - Counter(self._effects.identity())

    def _count(self) -> tuple[int, int]:
        """Return the numbers of writes to tensor attributes, and of random draws so far."""
        return len(self._trace.torch.attribute_writes), len(self._trace.objects.draws.made)


def _restores(record: Effect, frame: RealFrame) -> bool:
    """Whether a write of a handler restores the value that the attribute had when the frame started."""
    if not isinstance(record, DictSet) or type(record.key) is not str:
        return False
    return dict.get(resolve(record.target, frame), record.key, record) is record.value
