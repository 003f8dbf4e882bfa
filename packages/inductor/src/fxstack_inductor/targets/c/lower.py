"""Lower a CPU graph to text: C kernels, and a host program in C or Python.

In the examples, ``example`` compiles a function and prints what the pass changed: the lines before (``-``) and after
(``+``) the pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from torch.fx import GraphModule

from fxstack_inductor.codegen.c.module import CSource, c_source
from fxstack_inductor.codegen.host.build import host_steps
from fxstack_inductor.codegen.host.native import native_program
from fxstack_inductor.codegen.host.native_calls import through_shim
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.codegen.host.python_host import host_program
from fxstack_inductor.codegen.host.records import HostSteps, show_steps
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.lower.nested import NestedGraph, NestedGraphs
from fxstack_inductor.lower.passes import Lowering, lower_by_passes
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.native import Refused, native_table
from fxstack_inductor.schedule.outvariants import draws_bernoulli
from fxstack_inductor.schedule.plan import plan
from fxstack_inductor.schedule.steps import KernelStep, Plan, called_graphs, show_plan
from fxstack_inductor.targets.c.artifact import Lowered, kernels_of
from fxstack_interchange.passes import Pass, run_passes

MIN_CALLS = 4
"""A graph without kernels justifies a compiler run if a native host program speeds up this many calls."""


@dataclass(frozen=True, slots=True)
class CPrinting:
    """A schedule between two passes. ``boxed``: the program takes one list."""

    plan: Plan
    options: InductorOptions
    boxed: bool
    source: CSource | None = None
    """Set by ``print_kernels``; None before."""
    steps: HostSteps | None = None
    """Set by ``plan_host``; None before."""
    program: HostProgram | None = None
    """Set by ``print_host``; None before."""

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels of the schedule, in order."""
        return [step.kernel for step in self.plan.steps if isinstance(step, KernelStep)]

    @property
    def draws(self) -> bool:
        """Whether the host program draws random numbers itself."""
        return any(draws_bernoulli(step) for step in self.plan.steps)

    @property
    def c(self) -> CSource:
        """The C of the kernels, for passes after ``print_kernels``."""
        assert self.source is not None
        return self.source


def print_kernels(state: CPrinting) -> CPrinting:
    """Write the kernels as C functions; equal kernels become one function.

    >>> example("print_kernels", lambda x: x * 2)
    + /* mul */
    + FUNCTION_BEGIN STRAIGHT
    + void kernel_0(const float* restrict a0, float* restrict a1, const int64_t threads) {
    + {
    + #pragma omp simd
    ...
    + FUNCTION_END
    """
    return replace(state, source=c_source(state.kernels, state.options, random=state.draws))


def plan_host(state: CPrinting) -> CPrinting:
    """List what the host does between the kernels, and give tensors that die in the call a slot of one block.

    >>> example("plan_host", lambda x: (x @ x).exp() @ x)
    + slot mm: mm, 16 elements, steps 0 to 1
    + slot exp__0: exp__0, 16 elements, steps 1 to 2
    + borrow the block of the slots
    + t0_mm = aten.mm(arg0_1, t0_mm)
    + launch kernel_1(mm, exp__0)
    ...
    + return mm_1
    """
    return replace(state, steps=host_steps(state.plan))


def print_host(state: CPrinting) -> CPrinting:
    """Write the host program: in C where a compiler run pays, else in Python.

    >>> example("print_host", lambda x: x @ x)
    - allocate mm
    - mm = aten.mm(arg0_1, mm)
    - free arg0_1
    - return mm
    + def call(arg0_1):
    ...
    + return (mm, )
    """
    assert state.steps is not None
    source, calls = state.c, sum(map(through_shim, state.plan.steps))
    if not (state.kernels or calls >= MIN_CALLS) or native_refusal(state.options) is not None:
        checked = state.options.nan_asserts
        program = host_program(state.steps, source.functions, boxed=state.boxed, checks_numbers=checked)
        return replace(state, program=program)
    return replace(state, program=native_program(state.steps, source, boxed=state.boxed))


def text(state: CPrinting) -> str:
    """Return the schedule, the kernels in C and the host program as text."""
    parts = [show_plan(state.plan)]
    if state.source is not None:
        parts.append(kernels_of(state.source.text))
    if state.program is not None:
        parts.append(state.program.c or state.program.source)
    elif state.steps is not None:
        parts.append(show_steps(state.steps))
    return "\n".join(parts)


C: Final = (
    Pass("print_kernels", print_kernels),
    Pass("plan_host", plan_host),
    Pass("print_host", print_host),
)


def lower_c(
    graph_module: GraphModule,
    options: InductorOptions,
    *,
    boxed: bool = False,
    functions: NestedFunctions | None = None,
) -> Lowered:
    """Return the generated code of a CPU graph; neither a compiler nor a certain machine is needed.

    ``functions`` are the functions of operators that this compilation has met.
    """
    functions = NestedFunctions() if functions is None else functions
    lowering = Lowering(graph_module, options, nested=functions.graphs)
    scheduled = plan(lower_by_passes(lowering), options)
    state = run_passes("c", C, CPrinting(scheduled, options, boxed), text)
    assert state.program is not None
    needed = state.program.native or bool(state.kernels) or state.draws
    c = state.c.text if needed else ""
    nested = {graph: functions.lowered_of(graph, options) for graph in called_graphs(scheduled)}
    return Lowered(scheduled, c, state.program, state.c.functions, graph_module, options, nested)


@dataclass
class NestedFunctions:
    """The functions that operators of one compilation call, each lowered once."""

    graphs: NestedGraphs = field(default_factory=NestedGraphs)
    lowered: dict[NestedGraph, Lowered] = field(default_factory=dict)

    def lowered_of(self, graph: NestedGraph, options: InductorOptions) -> Lowered:
        """Return the generated code of ``graph``."""
        if graph not in self.lowered:
            self.lowered[graph] = lower_c(graph.module, options, functions=self)
        return self.lowered[graph]


def native_refusal(options: InductorOptions) -> str | None:
    """Return why host programs are Python under ``options`` in this process; None if they are C."""
    if options.host == "python":
        return "the option host='python' is set"
    if options.nan_asserts:
        return "the option nan_asserts is set"
    table = native_table()
    return table.reason if isinstance(table, Refused) else None
