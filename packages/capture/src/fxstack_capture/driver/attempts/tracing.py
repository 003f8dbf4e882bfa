"""Make attempts to trace one frame. Each attempt follows a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType

from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.attempts.attempt import attempt, drafted, new_trace
from fxstack_capture.driver.attempts.exception_handlers import passing
from fxstack_capture.driver.attempts.outcomes import Outcome
from fxstack_capture.driver.code_history import CodeState
from fxstack_capture.driver.contracts import CallContract, names_of_forward
from fxstack_capture.driver.frame_policy.policy import is_module_call
from fxstack_capture.driver.replacement import Written
from fxstack_capture.emit.resume import Resumptions
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.interpreter.array_loops import loops_over_arrays
from fxstack_capture.interpreter.program import ProgramTable
from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.chosen import choices_of
from fxstack_capture.trace.records import Blocks, TracePlan
from fxstack_capture.trace.state import Trace

# The number of calls of a function that run in plain Python because they only fill a cache.
_MAX_PLAIN_CALLS = 4


@dataclass(frozen=True, slots=True)
class Plan(TracePlan):
    """The plan of one attempt, and where the attempt stops."""

    stop_at: tuple[int, ...] | None = None
    """The break path. The trace stops at its end."""
    graph_break: BreakRecord | None = None
    """The graph break at the end of ``stop_at``, or None."""
    is_error: bool = False
    """Whether the program has declared the last graph break an error."""
    left: int = 12
    """Number of further attempts that are allowed. Each attempt may find another place to stop."""


@dataclass(frozen=True, slots=True)
class FrameTracing:
    """The data that all attempts to trace one frame share. ``FrameCompiler`` makes one for each frame that it
    compiles.
    """

    frame: RealFrame
    """The values with which the frame starts."""
    code: CodeType
    """The code that runs: the function's own code, or a resume function."""
    state: CodeState
    """The history of ``code``."""
    options: CaptureOptions
    """The options of this compilation."""
    programs: ProgramTable
    """The decoded bytecode of all functions. All traces of a compiler share it."""
    resumptions: Resumptions
    """The resume functions of the compiler."""
    contract: CallContract | None
    """The shape contract of the calls, or None."""
    polyfilled: set[int]
    """Ids of the program's code objects in which a graph has broken below C code. Attempts add to this set."""
    is_first: bool
    """Whether the frame is the outermost frame of a call."""
    for_entry: bool
    """Whether the replacement becomes an entry of the frame hook."""
    report: Callable[..., None]
    """A function that is called with the record of each graph break and ``is_error``. It raises if breaks are
    forbidden.
    """

    @property
    def user(self) -> int:
        """The id of the code object that the user wrote."""
        return id(self.resumptions.user_of(self.code))

    @property
    def may_stay_plain(self) -> bool:
        """Whether the frame runs in plain Python if its graph breaks, because it only computes arrays in a loop."""
        if self.is_first or self.resumptions.of(self.code) is not None:
            return False
        return loops_over_arrays(self.code, self.frame.function.__globals__, self.frame.arguments.values())

    def attempt(self, plan: Plan) -> Outcome:
        """Trace the frame once, and write the draft of its replacement."""
        trace = self._new_trace(plan)
        finish = partial(drafted, trace, self.frame, self.code, self.resumptions)
        outcome = attempt(self.frame, trace, finish, plan.stop_at)
        return replace(outcome, graph_break=plan.graph_break) if isinstance(outcome, Written) else outcome

    def passing(self, plan: Plan, calls: dict[Blocks, tuple[int, int]]) -> frozenset[Blocks]:
        """Return the ``try`` blocks of the program that do not act on errors of these calls.

        For ``calls``, see ``HandlerSees``.
        """
        return passing(calls, self.frame, partial(self._new_trace, replace(plan, unseen=None)))

    def _new_trace(self, plan: Plan) -> Trace:
        """Return a trace with the options, the contract and the plan of the attempt."""
        contract = None if self.contract is None else self.contract.bind(self.frame)
        trace = new_trace(self.options, self.programs, self.state.history, contract)
        trace.choices = choices_of(
            self.options, lambda: names_of_forward(self.frame) if is_module_call(self.code) else {}
        )
        trace.for_entry = self.for_entry
        trace.may_fall_back = trace.for_entry
        trace.may_defer = trace.for_entry and self.state.plain_calls < _MAX_PLAIN_CALLS
        trace.plan = plan
        return trace
