"""Measure the steps of a compiled CPU graph: run it once by a Python host program that reads a clock at each step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from fxstack_inductor.codegen.c.module import c_source
from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.build import host_steps
from fxstack_inductor.codegen.host.python_host import PythonPrinter
from fxstack_inductor.schedule.outvariants import draws_bernoulli
from fxstack_inductor.schedule.steps import KernelStep
from fxstack_inductor.targets.c.artifact import Lowered, image_of
from fxstack_inductor.targets.c.load import link


@dataclass
class Profiled:
    """A graph whose calls are timed: ``run`` has the calling convention of the compiled graph.

    ``seconds`` maps the name of each kernel and each call (``ExternCall.name``) to the seconds of all runs.
    """

    run: Callable[..., tuple[Any, ...]]
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class _TimingPrinter(PythonPrinter):
    """Writes the host program with a clock around each launch and each call."""

    def write(self, record: records.Record) -> None:
        """Write the lines of one record, between readings of the clock if it is timed."""
        name = _timed_name(record)
        if name:
            self.line("started = clock()")
        super().write(record)
        if name:
            self.line(f"spent[{name!r}] += clock() - started")


def _timed_name(record: records.Record) -> str:
    """Return the name under which a step is timed; "" for a step that is not timed."""
    match record:
        case records.Launch():
            return record.kernel.name
        case records.Call() | records.Nested():
            return str(getattr(record.step, "name", ""))
    return ""


def profile_steps(lowered: Lowered, *, boxed: bool) -> Profiled:
    """Return the graph with timed steps. The kernels are compiled once more, for a Python host program.

    Raises:
        InductorError: the kernels cannot be compiled.
    """
    plan = lowered.plan
    spent: defaultdict[str, float] = defaultdict(float)
    kernels = [step.kernel for step in plan.steps if isinstance(step, KernelStep)]
    random = any(draws_bernoulli(step) for step in plan.steps)
    source = c_source(kernels, lowered.options, random=random)
    printer = _TimingPrinter(host_steps(replace(plan, boxed=boxed)), source.functions)
    printer.constants.update(clock=perf_counter, spent=spent)
    program = printer.program(boxed=boxed)
    text = source.text if kernels or random else ""
    timed = replace(lowered, c=text, program=program, functions=source.functions)
    return Profiled(link(image_of(timed, boxed=boxed), lowered.options, lambda: lowered.graph), spent)
