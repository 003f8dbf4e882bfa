"""Decide which handlers of a program would act on an error that a graph raises when it runs.

A graph that has written to its inputs cannot be undone, so an error of the graph leaves the frame at once. That is
right where the handlers of the program let the error through and leave everything as the graph found it: ``finally``
blocks that restore attributes, ``except`` clauses for other errors, contexts that set a flag. To find out, the frame
is traced once more, with an error raised at a call of the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch

from fxstack_capture.driver.attempts.attempt import attempt
from fxstack_capture.emit.resolve import resolve
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.trace.effect_diff import diff
from fxstack_capture.trace.effects import DictSet, Effect, Effects
from fxstack_capture.trace.records import Blocks, Raised, RootOutcome
from fxstack_capture.trace.state import Trace


class _DataError(torch.linalg.LinAlgError, IndexError, ValueError):
    """An error that every ``except`` clause for data errors of operators catches."""


_PLAIN = (IndexError, RuntimeError)
"""The classes of most errors. A handler may compare the class (``kind is IndexError``)."""


def passing(
    calls: dict[Blocks, tuple[int, int]], frame: RealFrame, new_trace: Callable[[], Trace]
) -> frozenset[Blocks]:
    """Return the blocks that let errors of their first and their last call through without acting on them.

    An attempt that ended with ``HandlerSees`` asks. ``calls`` has the numbers of the first and last call in each
    ``try`` block. Each question traces the frame once more.
    """
    return frozenset(
        blocks
        for blocks, (first, last) in calls.items()
        if _passes(last, _DataError, frame, new_trace())
        and all(_passes(first, kind, frame, new_trace()) for kind in (_DataError, *_PLAIN))
    )


def _passes(number: int, kind: type[Exception], frame: RealFrame, trace: Trace) -> bool:
    """Whether an error of the class ``kind``, raised by the call with this number, leaves the frame.

    The handlers of the program may undo side effects, and do nothing else.
    """
    trial = _Trial(number, kind("an operator refuses the data of its tensors"), frame, trace)
    trace.call_raises = trial.next_call
    return attempt(frame, trace, trial.passes) is True


class _Trial:
    """One trace in which the call with a given number raises ``error``, and the handlers of the program run."""

    def __init__(self, number: int, error: Exception, frame: RealFrame, trace: Trace) -> None:
        self._left = number
        self._frame = frame
        self._trace = trace
        self._error = error
        self._effects = Effects(())
        self._recorded = 0, 0, 0

    def next_call(self) -> BaseException | None:
        """Return the error that the next call of the graph raises, or None. The trace asks before each call.

        The state of the program is recorded together with the error.
        """
        self._left -= 1
        if self._left:
            return None
        self._effects, self._recorded = diff(self._trace.objects), self._count()
        return self._error

    def passes(self, end: RootOutcome) -> bool:
        """Whether the error has left the frame and its handlers did nothing more. ``attempt`` calls this method at
        the end.
        """
        return isinstance(end, Raised) and self.is_unchanged(end.exception)

    def is_unchanged(self, error: BaseException) -> bool:
        """Whether ``error`` is the unchanged error of the call, and the program has had no side effect since the call."""
        if error is not self._error or error.__cause__ is not None or vars(error) or len(error.args) != 1:
            return False
        if self._trace.torch.state_delta() or self._count() != self._recorded:
            return False
        after = Effects(tuple(r for r in diff(self._trace.objects) if not _restores(r, self._frame)))
        return not Counter(after.identity()) - Counter(self._effects.identity())

    def _count(self) -> tuple[int, int, int]:
        """Count the operators, the written attributes of tensors and the random numbers so far."""
        torch_side, objects = self._trace.torch, self._trace.objects
        return torch_side.assumptions.operators, len(torch_side.attribute_writes), len(objects.draws.made)


def _restores(record: Effect, frame: RealFrame) -> bool:
    """Whether a write of the handler only restores the value that an attribute had when the frame started."""
    if not isinstance(record, DictSet) or type(record.key) is not str:
        return False
    return dict.get(resolve(record.target, frame), record.key, record) is record.value
