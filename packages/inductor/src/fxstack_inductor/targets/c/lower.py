"""Lower a CPU graph to text: C kernels, and a host program in C or Python.

In the examples, ``example`` compiles a function and prints what the pass changed: the lines before (``-``) and after
(``+``) the pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from torch.fx import GraphModule

from fxstack_inductor.codegen.c.module import CSource, c_source
from fxstack_inductor.codegen.host.build import host_steps
from fxstack_inductor.codegen.host.native_calls import through_shim
from fxstack_inductor.codegen.host.native_program import native_program
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.codegen.host.python_host import host_program
from fxstack_inductor.codegen.host.records import HostSteps, show_steps
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import ExternCall, Layout
from fxstack_inductor.lower.host.symbols import hints
from fxstack_inductor.lower.nested.calls import NestedCall
from fxstack_inductor.lower.nested.graphs import NestedGraph, NestedGraphs
from fxstack_inductor.lower.nested.results import results_of
from fxstack_inductor.lower.passes import Lowering, lower_by_passes
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.native import Refused, native_table
from fxstack_inductor.schedule.check_first import check_first
from fxstack_inductor.schedule.nested import takes_plain_operands, unbound_symbols, with_kernel_names
from fxstack_inductor.schedule.outvariants import draws_bernoulli, out_variant
from fxstack_inductor.schedule.plan import plan
from fxstack_inductor.schedule.steps import Body, Plan, all_bodies, all_kernels, show_plan
from fxstack_inductor.targets.c.artifact import Lowered, kernels_of
from fxstack_interchange.passes import NothingToDo, Pass, run_passes

MIN_CALLS = 4
"""A graph without kernels gets a host program in C only if C speeds up at least this many calls."""


@dataclass(frozen=True, slots=True)
class CPrinting:
    """A schedule between two passes."""

    plan: Plan
    options: InductorOptions
    hints: Mapping[str, int]
    """The symbolic sizes of the trace."""
    source: CSource | None = None
    """Set by ``print_kernels``; None before."""
    steps: HostSteps | None = None
    """Set by ``plan_host``; None before."""
    program: HostProgram | None = None
    """Set by ``print_host``; None before."""

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels of the schedule and of the functions in its loops, in order."""
        return all_kernels(self.plan)

    @property
    def draws(self) -> bool:
        """Whether the host program draws random numbers itself."""
        plans = [self.plan, *(body.plan for body in all_bodies(self.plan))]
        return any(draws_bernoulli(step) for each in plans for step in each.steps)

    @property
    def c(self) -> CSource:
        """The C of the kernels, for passes after ``print_kernels``."""
        assert self.source is not None
        return self.source


def check_indices(state: CPrinting) -> CPrinting | NothingToDo:
    """Check indices in kernels of their own at the start of a backward, which then frees its inputs as it goes.

    >>> example("check_indices", lambda x, y, i: (x[i] + y[i.clamp(-9, 8)], y @ x), (99, 99), (99, 99), (2,))
    + kernel_checks_0: add; reads arg2_1; stores
    + kernel_checks_1: add; reads arg2_1; stores
    """
    if not state.plan.boxed:
        return NothingToDo("the caller keeps the inputs")
    changed = check_first(state.plan, state.hints)
    return changed if isinstance(changed, NothingToDo) else replace(state, plan=changed)


def print_kernels(state: CPrinting) -> CPrinting:
    """Write the kernels as C functions; equal kernels become one function.

    >>> example("print_kernels", lambda x: x * 2)
    + /* mul */
    + FUNCTION_BEGIN STRAIGHT
    + void kernel_0(const float* restrict a0, float* restrict a1, const int64_t threads) {
    + {
    + #pragma omp simd /* written out or vector, because it has few points */
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
    loops = any(isinstance(step, NestedCall) for step in state.plan.steps)
    if not (state.kernels or calls >= MIN_CALLS or loops) or native_refusal(state.options) is not None:
        checked = state.options.nan_asserts
        program = host_program(state.steps, source.functions, boxed=state.plan.boxed, checks_numbers=checked)
        return replace(state, program=program)
    return replace(state, program=native_program(state.steps, source, boxed=state.plan.boxed))


def text(state: CPrinting) -> str:
    """Return the schedule, the kernels in C and the host program as text."""
    parts = [show_plan(state.plan)]
    parts += [f"{body.name}:\n{show_plan(body.plan)}" for body in all_bodies(state.plan)]
    if state.source is not None:
        parts.append(kernels_of(state.source.text))
    if state.program is not None:
        parts.append(state.program.c or state.program.source)
    elif state.steps is not None:
        parts.append(show_steps(state.steps))
    return "\n".join(parts)


C: Final = (
    Pass("check_indices", check_indices),
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
    functions = NestedFunctions(options) if functions is None else functions
    lowering = Lowering(graph_module, options, nested=functions.graphs)
    scheduled = plan(lower_by_passes(lowering), options)
    scheduled = replace(scheduled, boxed=boxed, keeps_memory=options.keep_memory)
    sizes = hints(node.meta.get("val") for node in graph_module.graph.find_nodes(op="placeholder"))
    state = run_passes("c", C, CPrinting(scheduled, options, sizes), text)
    assert state.program is not None
    needed = state.program.native or bool(state.kernels) or state.draws
    c = state.c.text if needed else ""
    return Lowered(
        state.plan, c, state.program, state.c.functions, graph_module, options, functions.lowered_of
    )


class NestedFunctions:
    """The functions that operators of one compilation call, each lowered once."""

    def __init__(self, options: InductorOptions) -> None:
        self.options = options
        native = native_refusal(options) is None
        self.graphs = NestedGraphs(schedule=self.body_of if native else None)
        self._lowered: dict[NestedGraph, Lowered] = {}
        self._bodies: dict[tuple[NestedGraph, tuple[Layout | None, ...], bool], Body | None] = {}

    def lowered_of(self, graph: NestedGraph) -> Lowered:
        """Return the generated code of ``graph`` as a program of its own."""
        if graph not in self._lowered:
            self._lowered[graph] = lower_c(graph.module, self.options, functions=self)
        return self._lowered[graph]

    def body_of(self, graph: NestedGraph, layouts: tuple[Layout | None, ...], exclusive: bool) -> Body | None:
        """Return ``graph`` as a function of the host program; see ``results_of`` for the other arguments.

        None if its results are numbers or have other shapes, or if it reads sizes that are no operands.
        """
        key = (graph, layouts, exclusive)
        if key not in self._bodies:
            self._bodies[key] = None
            name = f"nested_{len(self._bodies) - 1}"
            self._bodies[key] = self._scheduled(graph, layouts, name, exclusive=exclusive)
        return self._bodies[key]

    def _scheduled(
        self, graph: NestedGraph, layouts: tuple[Layout | None, ...], name: str, *, exclusive: bool
    ) -> Body | None:
        """Return the scheduled function ``name``, or None; see ``body_of``."""
        lowering = Lowering(graph.module, self.options, nested=self.graphs, prefix=f"{name}_")
        program = lower_by_passes(lowering)
        found = results_of(program, layouts, _writes_into_memory, exclusive=exclusive)
        if found is None or program.mutations:
            return None
        program.outputs[:] = found.nodes
        program.steps += found.copies
        scheduled = plan(program, self.options)
        if not unbound_symbols(scheduled) and takes_plain_operands(program):
            return Body(name, with_kernel_names(scheduled, name.replace("nested", "kernel")), found)
        return None


def _writes_into_memory(call: ExternCall) -> bool:
    """Whether the host program provides the memory of a call's results."""
    return isinstance(call, NestedCall) or out_variant(call) is not None


def native_refusal(options: InductorOptions) -> str | None:
    """Return why host programs are Python under ``options`` in this process; None if they are C."""
    if options.host == "python":
        return "the option host='python' is set"
    if options.nan_asserts:
        return "the option nan_asserts is set"
    table = native_table()
    return table.reason if isinstance(table, Refused) else None
