"""Trace one frame to its end, or to the first graph break at which execution can resume."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType

from fxstack_capture.breaks import BreakRecord, GraphBreak, graph_break
from fxstack_capture.bytecode.program import ProgramTable
from fxstack_capture.driver.attempt import Attempt, attempt, new_trace
from fxstack_capture.driver.contracts import CallContract, names_of_forward
from fxstack_capture.driver.errors import unsupported
from fxstack_capture.driver.frame_policy.policy import is_module_call
from fxstack_capture.driver.handlers import passing
from fxstack_capture.driver.replacement import Written
from fxstack_capture.driver.states import CodeState
from fxstack_capture.emit.endings.breaking import draft_stop
from fxstack_capture.emit.errors import CannotRebuildError, CannotResumeError
from fxstack_capture.emit.frame import Draft, draft_return
from fxstack_capture.emit.resume import Resumptions
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.chosen import choices_of
from fxstack_capture.torch_side.autograd.tensor_hooks import LaterHooks
from fxstack_capture.torch_side.recording.assumptions import Blocks, HandledError, RefusedError
from fxstack_capture.trace.records import Raised, Returned, Stopped
from fxstack_capture.trace.state import Trace

# The number of traces of a frame: to the end, to a break, to the creation of an object that cannot leave the
# graph.
_ATTEMPTS = 12

# The number of calls of a function that run in plain Python because the calls fill a cache.
_PLAIN_CALLS = 4


@dataclass(frozen=True, slots=True)
class _How:
    """How a frame is traced, as its earlier traces have found."""

    polyfills: bool
    """Whether Python code takes the place of C code that calls the program, so that the graph can break there."""
    assuming: bool = True
    """Whether checks of the program may be assumed to pass."""
    ends_at_writes: bool = False
    unseen: frozenset[Blocks] | None = None
    """See ``AssumedTruths.unseen``."""
    later: frozenset[int] = frozenset()
    """The hooks on tensors that the replacement code registers after the graph has run."""


def _not_stopped(found: BreakRecord | None, *, is_error: bool) -> BaseException:
    """The exception for a frame in which no graph can end, because of ``found`` if that is known."""
    if found is None:
        return graph_break("tracing-error", "the frame cannot be stopped anywhere")
    return unsupported(found) if is_error else GraphBreak(found.reason, found.detail, found.stack)


@dataclass(frozen=True, slots=True)
class FrameTracing:
    """Traces frames with given options. ``report`` is called for each graph break and may raise."""

    options: CaptureOptions
    programs: ProgramTable
    resumptions: Resumptions
    contract: CallContract | None
    for_entry: bool
    """Whether the replacement becomes an entry of the frame hook."""
    polyfilled: set[int]
    """Ids of the program's code objects in which a graph has broken below C code; the tracing adds to them."""
    report: Callable[..., None]

    def write(self, frame: RealFrame, code: CodeType, state: CodeState) -> Written:
        """Trace to the end or to the first graph break. Then trace again up to the break.

        The second trace stops earlier if an object cannot leave the graph at the break.
        """
        stop_at: tuple[int, ...] | None = None
        record: BreakRecord | None = None
        found: BreakRecord | None
        user = id(self.resumptions.user_of(code))
        how, is_error = _How(polyfills=user in self.polyfilled), False
        attempts = _ATTEMPTS
        while attempts:
            attempts -= 1
            try:
                return replace(self._traced(frame, code, state, stop_at, how), graph_break=record)
            except LaterHooks as reason:
                attempts += not reason.numbers <= how.later  # a frame may have any number of hooks
                how = replace(how, later=how.later | reason.numbers)
                continue
            except RefusedError as reason:
                how, stop_at, record = self._again(how, reason, frame, code, state), None, None
                continue
            except GraphBreak as reason:
                if reason.error is not None:
                    raise reason.error from reason.error.__cause__
                if reason.until is not None:
                    raise
                if reason.below_c_code and not (how.polyfills or self.options.fullgraph):
                    # Trace again with polyfills, so that the graph can break below C code.
                    how, stop_at, record = replace(how, polyfills=True), None, None
                    self.polyfilled.add(user)
                    continue
                at, found, is_error = reason.path, reason.record, reason.is_error
            except CannotRebuildError as reason:
                found = graph_break("escaping-object", reason.what).record
                at = () if reason.made_at is None else (reason.made_at,)
                if not at and (stop_at is None or len(stop_at) == 1):
                    raise
            except CannotResumeError:
                if stop_at is None or len(stop_at) == 1:
                    raise
                at, found = (), record
            if not at and stop_at is not None and len(stop_at) > 1:
                stop_at = stop_at[:-1]  # run the caller's call in plain Python instead
                continue
            if not at or found is None or (stop_at is not None and at >= stop_at):
                raise _not_stopped(found, is_error=is_error)
            stop_at, record = at, found
            self.report(record, is_error=is_error)
        raise _not_stopped(None, is_error=False)

    def _again(
        self, how: _How, reason: RefusedError, frame: RealFrame, code: CodeType, state: CodeState
    ) -> _How:
        """Return how the frame is traced again: without assumed checks, or with ends at writes or handled calls."""
        if not isinstance(reason, HandledError):
            return replace(
                how, assuming=reason.args == (True,) and not how.ends_at_writes, ends_at_writes=True
            )
        new = partial(self._new_trace, frame, code, state, how)
        return replace(how, unseen=passing(reason.calls, frame, new))

    def _traced(
        self, frame: RealFrame, code: CodeType, state: CodeState, stop_at: tuple[int, ...] | None, how: _How
    ) -> Written:
        trace = self._new_trace(frame, code, state, how)
        trace.torch.assumptions.unseen = how.unseen
        with attempt(frame, trace, stop_at) as done:
            draft, raised = self._draft(done, frame, code)
            trace.objects.close()
            guards = tuple(trace.guards)
        return Written(draft, guards, None, raised)

    def _new_trace(self, frame: RealFrame, code: CodeType, state: CodeState, how: _How) -> Trace:
        contract = None if self.contract is None else self.contract.bind(frame)
        trace = new_trace(self.options, self.programs, state.history, contract)
        trace.choices = choices_of(
            self.options, lambda: names_of_forward(frame) if is_module_call(code) else {}
        )
        trace.for_entry = self.for_entry
        trace.may_fall_back = trace.for_entry
        trace.may_defer = trace.for_entry and state.plain_calls < _PLAIN_CALLS
        trace.polyfills = how.polyfills
        trace.torch.assumptions.allowed = how.assuming
        trace.torch.assumptions.ends_at_writes = how.ends_at_writes
        trace.torch.assumptions.later_hooks = how.later
        return trace

    def _draft(
        self, done: Attempt, frame: RealFrame, code: CodeType
    ) -> tuple[Draft | None, BaseException | None]:
        match done.outcome:
            case Returned(value):
                return draft_return(done.trace, frame, code, value), None
            case Stopped():
                return draft_stop(done.trace, frame, code, done.outcome, self.resumptions), None
            case Raised(error):
                if done.trace.torch.assumptions.passed is not None:
                    raise RefusedError  # only the assumed branch may raise this error
                return None, error
        raise AssertionError(done.outcome)
