"""Check the indices of a program before its first step, so that the program can free its inputs after their last use.

After an index out of range the whole graph runs in eager, which raises its own error, and for that its inputs must
exist. A backward that checks an index in its last step, as the gradient of an embedding does, would keep all that the
forward has saved while it makes the gradients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import Expr, Var, product, value_var
from fxstack_inductor.ir.kernel import (
    Check,
    Kernel,
    Load,
    Loop,
    Reduce,
    Scan,
    Value,
    index_variables,
    with_expressions,
    with_operands,
)
from fxstack_inductor.schedule.build import extent
from fxstack_inductor.schedule.loops import normalise
from fxstack_inductor.schedule.steps import KernelStep, Plan, Step, all_bodies, all_kernels
from fxstack_interchange.passes import NothingToDo

SHARE = 16
"""Checks must read at most one of this many bytes of the inputs: they read indices a second time."""


def check_first(plan: Plan, hints: Mapping[str, int]) -> Plan | NothingToDo:
    """Return ``plan`` with kernels in front that check all indices, and write nothing; ``hints``: the sizes of the trace."""
    steps = [step for step in plan.steps if isinstance(step, KernelStep) and step.kernel.checked]
    if not steps:
        return NothingToDo("no kernel checks an index")
    if any(kernel.checked for body in all_bodies(plan) for kernel in all_kernels(body.plan)):
        return NothingToDo("a function of a loop or branch checks an index")
    early = _early(plan)
    made: dict[Kernel, KernelStep] = {}
    for step in steps:
        if step.kernel.guarded:
            return NothingToDo("a kernel writes to an input if all indices are in range")
        for kernel in _checks(step.kernel, early):
            if kernel is None:
                return NothingToDo("an index is computed by a step that needs other steps")
            made.setdefault(kernel, _step(kernel, step, len(made)))
    first = _needed(plan, early, made)
    if not _is_small([*made, *(step.kernel for step in first)], plan, hints):
        return NothingToDo("the indices are as large as other inputs")
    rest = (_without_checks(step) for step in plan.steps if step not in first)
    return replace(plan, steps=(*first, *made.values(), *rest))


def _early(plan: Plan) -> dict[str, KernelStep | None]:
    """Return the buffers that are known before the program's other steps: inputs, and what kernels compute from them.

    A buffer that several steps write, such as that of a scatter and its start value, is not known.
    """
    steps = [step for step in plan.steps if isinstance(step, KernelStep)]
    writers = Counter(name for step in steps for name in step.kernel.written)
    mutated = {mutation.target.name for mutation in plan.program.mutations}
    early: dict[str, KernelStep | None] = dict.fromkeys(plan.program.inputs.keys() - mutated - writers.keys())
    for step in steps:
        kernel = step.kernel
        plain = not (kernel.checked or kernel.scatters or kernel.inner)
        once = all(writers[name] == 1 and name not in plan.program.inputs for name in kernel.written)
        if plain and once and kernel.read <= early.keys():
            early |= dict.fromkeys(kernel.written, step)
    return early


def _needed(
    plan: Plan, early: Mapping[str, KernelStep | None], kernels: Iterable[Kernel]
) -> list[KernelStep]:
    """Return the steps whose results the kernels read, in order."""
    waiting, found = [name for kernel in kernels for name in kernel.read], list[KernelStep]()
    while waiting:
        step = early[waiting.pop()]
        if step is not None and step not in found:
            found.append(step)
            waiting += step.kernel.read
    return sorted(found, key=plan.steps.index)


def _checks(kernel: Kernel, early: Collection[str]) -> Iterator[Kernel | None]:
    """Yield, for each index that ``kernel`` checks, a kernel that only checks it; None if that needs other buffers."""
    facts = analyse(kernel)
    for position, value in enumerate(kernel.values):
        if isinstance(value, Check):
            needed = facts.needed([position])
            known = all(_is_early(kernel.values[k], early) for k in needed)
            yield _alone(kernel, needed) if known else None


def _is_early(value: Value, early: Collection[str]) -> bool:
    """Whether a value is known before the other steps, given its operands."""
    if isinstance(value, (Reduce, Scan)):
        return False
    return not isinstance(value, Load) or value.buffer in early


def _alone(kernel: Kernel, needed: Sequence[int]) -> Kernel:
    """Return a kernel of the values at the positions ``needed``, in the loops along which they change."""
    places = [0] * len(kernel.values)
    for place, position in enumerate(needed):
        places[position] = place
    names: dict[Var, Expr] = {
        var: value_var(f"v{places[k]}") for k in needed for var in value_var(f"v{k}").variables
    }
    values = tuple(
        with_expressions(with_operands(kernel.values[k], places), lambda e: e.subs(names)) for k in needed
    )
    used = {var for value in values for var in index_variables(value)}
    read = {value.buffer for value in values if isinstance(value, Load)}
    loops: tuple[Loop, ...] = tuple(loop for loop in (*kernel.outer, *kernel.inner) if loop.var in used)
    alone = replace(
        kernel,
        name="checks",
        outer=loops,
        inner=(),
        values=values,
        stores=(),
        buffers=tuple(ref for ref in kernel.buffers if ref.name in read),
    )
    return normalise(alone)


def _step(kernel: Kernel, step: KernelStep, number: int) -> KernelStep:
    """Return the launch of the checks ``kernel`` of ``step``."""
    names = {ref.name for ref in kernel.buffers}
    reads = tuple(node for node in step.reads if node.name in names)
    return KernelStep(replace(kernel, name=f"kernel_checks_{number}"), (), reads)


def _is_small(kernels: Collection[Kernel], plan: Plan, hints: Mapping[str, int]) -> bool:
    """Whether the checks read few bytes beside those of all inputs, as far as sizes are known."""
    points = [product(loop.extent for loop in kernel.outer) for kernel in kernels]
    inputs = plan.program.inputs.values()
    known = {size for size in (*points, *map(extent, inputs)) if all(v.name in hints for v in size.variables)}
    if not known.issuperset(points):
        return False
    held: int = sum(extent(n).evaluate(hints) * n.dtype.itemsize for n in inputs if extent(n) in known)
    return held >= SHARE * 8 * sum(size.evaluate(hints) for size in points)


def _without_checks(step: Step) -> Step:
    """Return ``step`` with indices that have been checked."""
    if not isinstance(step, KernelStep):
        return step
    values = tuple(
        replace(value, done=True) if isinstance(value, Check) else value for value in step.kernel.values
    )
    return replace(step, kernel=replace(step.kernel, values=values))
