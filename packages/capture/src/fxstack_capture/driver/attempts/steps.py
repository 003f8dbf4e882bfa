"""The attempts to trace a frame as passes, and the table from an outcome to the next attempt.

Tracing is deterministic, so a second attempt takes the same path as the first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from fxstack_capture.breaks import BreakRecord, graph_break
from fxstack_capture.driver.attempts.outcomes import (
    AssumptionRefused,
    BreaksAt,
    BreaksBelowC,
    CannotRebuild,
    CannotResume,
    HandlerSees,
    NeedsLaterHooks,
    NotTraced,
    Outcome,
    PlainPython,
    Raises,
    Traced,
)
from fxstack_capture.driver.attempts.tracing import FrameTracing, Plan
from fxstack_capture.driver.errors import unsupported
from fxstack_interchange.passes import Pass, run_passes

_Outcome = TypeVar("_Outcome", covariant=True)


@dataclass(frozen=True, slots=True)
class Attempt(Generic[_Outcome]):
    """An attempt that has ended."""

    tracing: FrameTracing
    """The frame, and the data that all attempts to trace it share."""
    plan: Plan
    """The plan that the attempt followed."""
    outcome: _Outcome
    """How the attempt ended. The class of the outcome selects the next step."""

    @property
    def restarted(self) -> Plan:
        """The plan of this attempt without its stop. An attempt with this plan traces the frame from its
        beginning.
        """
        return replace(self.plan, stop_at=None, graph_break=None)

    def again(self, plan: Plan) -> Attempt[Outcome]:
        """Trace the frame again by ``plan``. If the plan has a new graph break, report the break before."""
        if plan.graph_break is not None and plan.graph_break is not self.plan.graph_break:
            self.tracing.report(plan.graph_break, is_error=plan.is_error)
        if not plan.left:
            return self.plain(graph_break("tracing-error", "the frame cannot be stopped anywhere").record)
        plan = replace(plan, left=plan.left - 1)
        return Attempt(self.tracing, plan, self.tracing.attempt(plan))

    def plain(self, record: BreakRecord, why: str = "") -> Attempt[Outcome]:
        """Return the last attempt with an outcome that gives up: the frame runs in plain Python.

        ``why`` is the reason for users. The default is the message of ``record``.
        """
        return Attempt(self.tracing, self.plan, PlainPython(record, why or record.message))

    def stopped_at(self, path: tuple[int, ...], record: BreakRecord, *, is_error: bool) -> Attempt[Outcome]:
        """Trace the frame again up to the step at the end of the break path ``path``.

        With an empty path, the trace cannot stop at this step. It then stops at the call of the function that
        contains the step. If this is impossible as well, the frame runs in plain Python, or the graph break
        is raised as an error.
        """
        plan = replace(self.plan, is_error=is_error)
        if not path and self.stopped_in_a_call:
            return self.again(replace(plan, stop_at=(plan.stop_at or ())[:-1]))
        if not path or (plan.stop_at is not None and path >= plan.stop_at):
            if is_error:
                raise unsupported(record)
            return self.plain(replace(record, positions=()))
        return self.again(replace(plan, stop_at=path, graph_break=record))

    @property
    def stopped_in_a_call(self) -> bool:
        """Whether the trace stops inside of a called function. It can then stop at the call instead."""
        return len(self.plan.stop_at or ()) > 1


def trace(last: Attempt[NotTraced]) -> Attempt[Outcome]:
    """Trace the frame to its end.

    >>> def program(x):
    ...     return x.sin() + 1
    >>> attempts(program)
    trace: sin = l_x.sin(), add = operator.add(sin, 1)
    """
    return last.again(last.plan)


def trace_with_later_hooks(last: Attempt[NeedsLaterHooks]) -> Attempt[Outcome]:
    """Let the replacement code register the hooks of tensors that leave the graph. It does so after the graph
    has run.

    >>> def program(x):
    ...     y = x.exp()
    ...     y.register_hook(torch.neg)
    ...     return y
    >>> attempts(program, torch.ones(2, requires_grad=True))
    trace: [unsupported-call] a call of Tensor.register_hook of a tensor that leaves the graph cannot be traced
    trace_with_later_hooks: exp = l_x.exp()
    """
    known, numbers = last.plan.later, last.outcome.numbers
    is_new = not numbers <= known  # a frame may have any number of hooks
    return last.again(replace(last.plan, later=known | numbers, left=last.plan.left + is_new))


def trace_without_assumptions(last: Attempt[AssumptionRefused]) -> Attempt[Outcome]:
    """Do not assume that checks of the program pass. The graph breaks at each check.

    >>> def program(x):
    ...     x.add_(1)
    ...     assert x.sum() > 0
    >>> attempts(program)
    trace: an assumed check may fail, and the graph cannot be retracted
    trace_without_assumptions: [data-dependent-branch] a branch depends on the value of a tensor: ...
    trace_to_break: add_ = l_x.add_(1), sum_1 = l_x.sum()...
    """
    ends_before = last.outcome.several and not last.plan.ends_at_writes
    return last.again(replace(last.restarted, assuming=ends_before, ends_at_writes=True))


def trace_to_handled_calls(last: Attempt[HandlerSees]) -> Attempt[Outcome]:
    """End the graph at a call if a handler of the program acts on errors of the call.

    Some handlers do not act on errors, such as ``finally`` blocks that restore attributes.
    ``exception_handlers`` finds these by a trial.

    >>> def program(x, i):
    ...     with contextlib.suppress(IndexError):
    ...         return x.mul_(3).index_select(0, i)
    >>> attempts(program, torch.ones(2), torch.tensor([1]))
    trace: a handler may see an error of the graph, which cannot be retracted
    trace_to_handled_calls: [handled-error] TensorBase.index_select may raise an error that depends on ...
    trace_to_break: mul_ = l_x.mul_(3)
    """
    unseen = last.tracing.passing(last.plan, last.outcome.calls)
    return last.again(replace(last.restarted, unseen=unseen))


def trace_with_polyfills(last: Attempt[BreaksBelowC]) -> Attempt[Outcome]:
    """Run polyfills in place of C code that calls the program. The graph can then break in the called
    functions.

    >>> attempts(lambda x: max([x, x + 1], key=lambda y: y.item()), torch.ones(()))
    trace: [data-dependent-number] Python code needs the number in a tensor: ...
    trace_with_polyfills: [data-dependent-number] Python code needs the number in a tensor: ...
    trace_to_break: add = operator.add(l_x, 1)
    """
    last.tracing.polyfilled.add(last.tracing.user)
    return last.again(replace(last.restarted, polyfills=True))


def trace_to_break(last: Attempt[BreaksAt]) -> Attempt[Outcome]:
    """Stop before the step that breaks the graph.

    >>> attempts(lambda x: x.cos() * x.sum().item())
    trace: [data-dependent-number] Python code needs the number in a tensor: ...
    trace_to_break: cos = l_x.cos(), sum_1 = l_x.sum()
    """
    outcome = last.outcome
    if last.tracing.may_stay_plain and not (outcome.is_error or last.tracing.options.fullgraph):
        return last.plain(outcome.record)
    return last.stopped_at(outcome.path, outcome.record, is_error=outcome.is_error)


def trace_to_creation(last: Attempt[CannotRebuild]) -> Attempt[Outcome]:
    """Stop before the step that makes an object which cannot leave the graph. If a called function makes the
    object, stop before the call.

    >>> def program(x):
    ...     y = x.sin()
    ...     return type("New", (), {"y": y}), y.cos()
    >>> attempts(program)
    trace: class New, which was created in the compiled code
    trace_to_creation: sin = l_x.sin()
    """
    outcome = last.outcome
    record = graph_break("escaping-object", outcome.text).record
    if outcome.made_at is None and not last.stopped_in_a_call:
        return last.plain(record, outcome.text)
    path = () if outcome.made_at is None else (outcome.made_at,)
    return last.stopped_at(path, record, is_error=last.plan.is_error)


def trace_to_call(last: Attempt[CannotResume]) -> Attempt[Outcome]:
    """Stop before the call of a function that no resume function can continue. The function then runs in
    plain Python.

    >>> def inner(x):
    ...     for i, y in zip(range(1), [x], strict=True):
    ...         y.sum().item()
    >>> attempts(lambda x: inner(x.sin()), frame=1)
    trace: [unsupported-object] the program uses an object that the tracer cannot model: a zip ...
    trace_to_break: the frame has run no instruction since the last graph break
    trace_to_call: the frame has run no instruction since the last graph break
    trace_to_call: the frame has run no instruction since the last graph break
    """
    record = graph_break("escaping-object", last.outcome.text).record
    if not last.stopped_in_a_call:
        return last.plain(record, last.outcome.text)
    return last.stopped_at((), record, is_error=last.plan.is_error)


STEPS: Final[dict[type, Pass[Attempt[Any]]]] = {
    NotTraced: Pass("trace", trace),
    NeedsLaterHooks: Pass("trace_with_later_hooks", trace_with_later_hooks),
    AssumptionRefused: Pass("trace_without_assumptions", trace_without_assumptions),
    HandlerSees: Pass("trace_to_handled_calls", trace_to_handled_calls),
    BreaksBelowC: Pass("trace_with_polyfills", trace_with_polyfills),
    BreaksAt: Pass("trace_to_break", trace_to_break),
    CannotRebuild: Pass("trace_to_creation", trace_to_creation),
    CannotResume: Pass("trace_to_call", trace_to_call),
}
"""Maps the class of an outcome to the pass that makes the next attempt. Any other outcome is the last."""


def write(tracing: FrameTracing) -> Traced:
    """Trace a frame in as many attempts as needed, and return the last outcome. ``FrameCompiler`` calls this.

    The outcome is the draft of the replacement, or says that the frame runs in plain Python.
    """
    plan = Plan(polyfills=tracing.user in tracing.polyfilled)
    last: Attempt[Outcome] = Attempt(tracing, plan, NotTraced())
    while (step := STEPS.get(type(last.outcome))) is not None:
        last = run_passes("capture", (step,), last, lambda attempt: attempt.outcome.text)
    if isinstance(last.outcome, Raises):
        raise last.outcome.error from last.outcome.error.__cause__
    assert isinstance(last.outcome, Traced)
    return last.outcome
