"""Choose by predicted times which calls become kernels of a template.

A kernel that takes the operations around a call saves a launch only where these operations would need a launch of their
own. Often another kernel, such as a norm behind a residual sum, takes them at little cost. So two schedules are compared,
one with the candidates as kernels and one with calls of the library, in parts: pieces of both schedules that compute the
same operators belong to one part. The candidates of a part become kernels if the part is predicted to be faster so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from fxstack_inductor.autotune.candidates import Candidates, Prediction, candidate_kernels
from fxstack_inductor.cost.devices import Gpu
from fxstack_inductor.cost.kernels import kernel_cost
from fxstack_inductor.cost.quantities import seconds_text
from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import ExternCall, Node, View
from fxstack_inductor.schedule.fusion.loop_matching import Refusal
from fxstack_inductor.schedule.steps import KernelStep, Plan, Step
from fxstack_inductor.tiling.tiles import tile

MARGIN = 0.15
"""A part must be faster by at least this fraction of the time of its candidates' kernels: the predictions err by as much."""
AROUND = "the operations around it"
"""What the report names beside a candidate that stays a call."""
NOTHING = Refusal("nothing to compute beside the library's call")

Predictions = Mapping[str, Prediction]
Refusals = dict[str, Refusal]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A kernel or a candidate's call of one schedule."""

    keys: frozenset[str]
    """The operators that it computes, and the tensors in memory that the other schedule lacks."""
    seconds: Callable[[], float]
    candidate: str = ""
    fused: bool = False
    """Whether the piece is a kernel of the schedule with candidates as kernels."""


def plan_by_cost(
    planned: Callable[[Candidates], Plan], chosen: Candidates, gpu: Gpu, sizes: Mapping[str, int]
) -> Plan:
    """Return the schedule in which those of ``chosen`` are kernels that are predicted to pay; its refusals name the rest.

    ``planned`` makes a schedule in which the given nodes are kernels, ``sizes`` gives the graph's symbols. A schedule
    with fewer candidates may fuse otherwise, so the rest is compared again.
    """
    refused: Refusals = {}
    calls: Plan | None = None
    while chosen:
        plan = planned(chosen)
        found = _predictions(plan, chosen, gpu)
        lost = {name: refusal for name in chosen if (refusal := _alone(found.get(name))) is not None}
        if len(lost) < len(chosen):
            calls = planned({}) if calls is None else calls
            lost |= _losing_parts(_pieces(plan, calls, found, gpu, sizes), found, lost)
        if not lost:
            return _with(plan, refused)
        refused |= lost
        chosen = {name: candidate for name, candidate in chosen.items() if name not in lost}
    return _with(planned({}) if calls is None else calls, refused)


def _with(plan: Plan, refused: Refusals) -> Plan:
    """Return ``plan``, whose report names the candidates that stay calls although a kernel would do more."""
    named = ((name, AROUND, why) for name, why in refused.items() if why is not NOTHING)
    return replace(plan, refusals=(*plan.refusals, *named))


def _predictions(plan: Plan, chosen: Candidates, gpu: Gpu) -> dict[str, Prediction]:
    """Return the predicted times of the candidates whose kernels can be written."""
    found = {}
    for name, kernel in candidate_kernels(plan, chosen):
        try:
            found[name] = chosen[name].predict(kernel, gpu)
        except NotLowered:
            continue
    return found


def _alone(found: Prediction | None) -> Refusal | None:
    """Return why a candidate stays a call whatever the rest of the schedule is; None if this depends on the rest."""
    if found is None:
        return Refusal("the template cannot write the kernel")
    if not found.fuses:
        return NOTHING
    if found.call + found.rest - found.kernel <= MARGIN * found.kernel:
        beside = f"{seconds_text(found.call)} and at most {seconds_text(found.rest)} for the rest"
        return Refusal("slower than the library's call and another kernel", _beside(found.kernel, beside))
    return None


def _beside(ours: float, theirs: str) -> str:
    return f"predicted: {seconds_text(ours)} beside {theirs}"


def _losing_parts(pieces: list[_Piece], found: Predictions, lost: Refusals) -> Refusals:
    """Return the refusals of candidates in parts that are no faster with kernels.

    A part with some of the candidates ``lost`` is another one in the next schedule, and waits.
    """
    refused: Refusals = {}
    for part in _parts(pieces):
        names = {piece.candidate for piece in part if piece.fused and piece.candidate}
        if not names or names & lost.keys():
            continue
        with_kernels = sum(piece.seconds() for piece in part if piece.fused)
        with_calls = sum(piece.seconds() for piece in part if not piece.fused)
        own = sum(found[name].kernel for name in names)
        if with_calls - with_kernels <= MARGIN * own:
            why = "other kernels take the operations"
            detail = _beside(with_kernels, f"{seconds_text(with_calls)} with the library's call")
            refused |= dict.fromkeys(sorted(names), Refusal(why, detail))
    return refused


# --- pieces and parts ----------------------------------------------------------------------------


def _parts(pieces: list[_Piece]) -> list[list[_Piece]]:
    """Return the pieces in groups that share keys, directly or by other pieces."""
    parents: dict[str, str] = {}

    def root(key: str) -> str:
        while (parent := parents.setdefault(key, key)) != key:
            key = parent
        return key

    for piece in pieces:
        first, *others = piece.keys
        for key in others:
            parents[root(key)] = root(first)
    groups: dict[str, list[_Piece]] = defaultdict(list)
    for piece in pieces:
        groups[root(next(iter(piece.keys)))].append(piece)
    return [*groups.values()]


def _pieces(plan: Plan, calls: Plan, found: Predictions, gpu: Gpu, sizes: Mapping[str, int]) -> list[_Piece]:
    """Return the pieces of both schedules. The library's calls outside of ``found`` are the same in both."""
    here, there = _in_memory(plan), _in_memory(calls)
    asked = {name: prediction for name, prediction in found.items() if prediction.fuses}
    pieces: list[_Piece] = []
    for schedule, fused, lacking in ((plan, True, here - there), (calls, False, there - here)):
        for step in schedule.steps:
            beside = {name: origin for name, origin in _origins(step) if origin in lacking}
            if isinstance(step, KernelStep):
                pieces += _kernels(step, beside, asked, gpu, sizes, fused=fused)
            elif isinstance(step, ExternCall) and step.name in asked:
                seconds = asked[step.name].call
                keys = frozenset([step.name, *beside.values()])
                pieces.append(_Piece(keys, partial(float, seconds), step.name))
    return pieces


def _kernels(
    step: KernelStep,
    beside: Mapping[str, str],
    asked: Predictions,
    gpu: Gpu,
    sizes: Mapping[str, int],
    *,
    fused: bool,
) -> Iterator[_Piece]:
    """Yield the kernels of a launch; kernels side by side run at the same time."""
    kernels = step.kernel.parts or (step.kernel,)
    for kernel in kernels:
        keys = frozenset(kernel.origins).union(beside[name] for name in kernel.read if name in beside)
        if kernel.template:
            name = next((name for name in kernel.origins if name in asked), "")
            if name:
                yield _Piece(keys, partial(float, asked[name].kernel), name, fused)
        elif keys:
            yield _Piece(keys, partial(_seconds, kernel, len(kernels), gpu, sizes), fused=fused)


def _seconds(kernel: Kernel, together: int, gpu: Gpu, sizes: Mapping[str, int]) -> float:
    """Return the predicted time of a kernel without a template, which shares its launch with ``together - 1`` others."""
    return kernel_cost(kernel, tile(kernel), gpu, sizes).seconds / together


def _in_memory(plan: Plan) -> frozenset[str]:
    """Return the operators whose results the steps of ``plan`` leave in memory."""
    made: list[Node] = []
    for step in plan.steps:
        made += step.stored if isinstance(step, KernelStep) else getattr(step, "outputs", ())
    return frozenset(node.origin for node in made if node.origin)


def _origins(step: Step) -> Iterator[tuple[str, str]]:
    """Yield the names of the tensors that a step reads, and the operators that they come from."""
    for node in step.reads:
        base: Node = node
        while isinstance(base, View):
            base = base.base
        yield base.name, base.origin
