"""The schedule of a whole graph: the passes from lowered tensors to kernels and calls in execution order.

In the examples, ``example`` compiles a function and prints what the pass changed: the lines before (``-``) and after
(``+``) the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeGuard

from fxstack_inductor.failures import about
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import Computed, ExternCall, Node
from fxstack_inductor.ir.ordered import Scatter
from fxstack_inductor.ir.printer import show_kernel
from fxstack_inductor.ir.verify import verify
from fxstack_inductor.lower.program import HostCall, Mutation, Program, show_call, show_program
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.schedule import loops
from fxstack_inductor.schedule.build import build_kernel
from fxstack_inductor.schedule.column_sums import sum_columns_in_rows
from fxstack_inductor.schedule.fusion.groups import Fusion, fuse
from fxstack_inductor.schedule.fusion.inlining import Usage, base_of, choose_inlined, find_usage
from fxstack_inductor.schedule.fusion.inplace import share_memory, write_in_place
from fxstack_inductor.schedule.fusion.inplace_scatter import drop_copies
from fxstack_inductor.schedule.fusion.layouts import like_operands
from fxstack_inductor.schedule.fusion.state import Group, Unit
from fxstack_inductor.schedule.order.equal_parts import EqualParts, equal_parts, with_copies, without_copies
from fxstack_inductor.schedule.order.units import in_order
from fxstack_inductor.schedule.side_by_side import run_side_by_side
from fxstack_inductor.schedule.steps import KernelStep, Plan, Step, TemplateCall, show_plan
from fxstack_interchange.passes import NothingToDo, Pass, run_passes


@dataclass(frozen=True, slots=True)
class Scheduling:
    """A program between two passes.

    ``units`` are calls and groups of tensors; each group becomes a kernel. ``steps`` are kernels and calls in
    order.
    """

    program: Program
    options: InductorOptions
    usage: Usage | None = None
    """Set by ``find_uses``; None before."""
    laid_out: frozenset[Node] = frozenset()
    """Set by ``lay_out_tensors``; empty before."""
    inlined: frozenset[Node] = frozenset()
    """Set by ``inline_tensors``; empty before."""
    fusion: Fusion | None = None
    """Set by ``fuse_tensors``; None before."""
    units: tuple[Unit, ...] = ()
    """Set by ``fuse_tensors``, then ordered; empty before."""
    steps: tuple[Step, ...] | None = None
    """Set by ``build_kernels``; None before."""
    copies: tuple[Mutation, ...] = ()
    """Mutations that the host must copy, because no kernel writes the input."""
    whole: Program | None = None
    """The program with the parts that ``set_copies_aside`` has removed; None if it has removed none."""
    parts: tuple[EqualParts, ...] = ()
    """The equal parts of ``whole``, of which ``program`` has the first."""

    @property
    def uses(self) -> Usage:
        assert self.usage is not None
        return self.usage

    @property
    def fused(self) -> Fusion:
        assert self.fusion is not None
        return self.fusion

    @property
    def kept(self) -> frozenset[Node]:
        """The tensors that the program returns or copies into its inputs."""
        values = [v for v in self.program.outputs if isinstance(v, Node)]
        return frozenset(map(base_of, (*values, *(m.value for m in self.program.mutations))))

    @property
    def ordered(self) -> tuple[Step, ...]:
        assert self.steps is not None
        return self.steps


def plan(program: Program, options: InductorOptions) -> Plan:
    """Return the schedule of ``program``: run the passes of ``SCHEDULE``. Both targets call this."""
    state = Scheduling(program, options, copies=tuple(program.mutations))
    return _plan_of(run_passes("schedule", SCHEDULE, state, text))


def _plan_of(state: Scheduling) -> Plan:
    """Return the schedule that the passes have made."""
    return Plan(state.program, state.ordered, tuple(state.fused.refusals), state.copies)


def set_copies_aside(state: Scheduling) -> Scheduling | NothingToDo:
    """Keep one of several equal parts of a program; the other parts repeat its schedule (``repeat_parts``).

    >>> example("set_copies_aside", lambda a, b, c, d: [x.mul_(2) for x in (a, b, c, d)][:0])
    - mul_1__1 = mul(arg1_1[i0, i1], 2.0)
    - mul_2__2 = mul(arg2_1[i0, i1], 2.0)
    ...
    - arg1_1 <- mul_1__1
    ...
    """
    parts = tuple(equal_parts(state.program))
    if not parts:
        return NothingToDo("the program has no equal parts")
    program = without_copies(state.program, parts)
    return replace(state, program=program, copies=tuple(program.mutations), whole=state.program, parts=parts)


def find_uses(state: Scheduling) -> Scheduling:
    """Find the tensors that something reads, and the tensors that must be in memory.

    >>> example("find_uses", lambda x: (x * 2).exp().sum(1))
    + # read by something: mul__0, exp__1, sum_1__2
    + # in memory: sum_1__2
    """
    return replace(state, usage=find_usage(state.program))


def lay_out_tensors(state: Scheduling) -> Scheduling | NothingToDo:
    """Give tensors that only kernels of a CPU read the order in memory of their operands, if reductions run along this.

    >>> example("lay_out_tensors", lambda x: (x.t().softmax(0), x.t().log_softmax(0)))
    + # order of operands: _softmax__1
    + # order of operands: clone__4
    """
    found = [] if state.program.many_threads else list(like_operands(state.uses))
    for node, layout in found:
        node.layout = layout
    nothing = NothingToDo("no tensor of transposed operands is reduced along their memory")
    return replace(state, laid_out=frozenset(node for node, _ in found)) if found else nothing


def inline_tensors(state: Scheduling) -> Scheduling | NothingToDo:
    """Choose the tensors that each reader computes again, so that they need no memory.

    >>> example("inline_tensors", lambda x: (x * 2).exp().sum(1))
    + # inlined: mul__0
    + # inlined: exp__1
    """
    inlined = choose_inlined(state.uses)
    return replace(state, inlined=frozenset(inlined)) if inlined else NothingToDo("no tensor is cheap enough")


def fuse_tensors(state: Scheduling) -> Scheduling:
    """Group tensors that share one loop nest; each group becomes a kernel.

    >>> example("fuse_tensors", lambda x: (x.exp().sum(1), x.cos(), x.cumsum(0)))
    + # kernel over 4, 4: sum_1__1, cos__2
    + # kernel over 4, 4: cumsum__3
    """
    groups, fusion = fuse(state.program, state.uses, set(state.inlined), state.options)
    calls = [s for s in state.program.steps if isinstance(s, (ExternCall, HostCall))]
    return replace(state, fusion=fusion, units=(*groups, *calls))


def order_units(state: Scheduling) -> Scheduling | NothingToDo:
    """Order groups and calls by their dependencies, and in the graph's order where these leave a choice.

    >>> example("order_units", lambda x: (x @ x).exp())
    + # call: mm = aten.mm(arg0_1, arg0_1)
    - # call: mm = aten.mm(arg0_1, arg0_1)
    """
    units = tuple(in_order(state.fused, state.units))
    if _same(units, state.units):
        return NothingToDo("the groups and calls are in order")
    return replace(state, units=units)


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    """Whether both sequences have the same objects in the same order."""
    return list(map(id, some)) == list(map(id, others))


def build_kernels(state: Scheduling) -> Scheduling:
    """Write each group as one kernel: loops, loads, computations, stores.

    >>> example("build_kernels", lambda x: x * 2)
    - def program(arg0_1):
    - arg0_1: float32[4, 4]
    - mul__0 = mul(arg0_1[i0, i1], 2.0)
    - return mul__0
    - # read by something: mul__0
    ...
    + kernel_0: mul; reads arg0_1; stores mul__0
    """
    fusion = state.fused
    steps: list[Step] = []
    for unit in state.units:
        if isinstance(unit, TemplateCall):
            steps.append(unit.build(unit))
            continue
        if not isinstance(unit, Group):
            steps.append(unit)
            continue
        unit.placed = {n: unit.placed[n] for n in sorted(unit.placed, key=lambda n: fusion.position[id(n)])}
        stored = _stored(fusion, unit)
        with about(*dict.fromkeys(node.origin for node in unit.placed)):
            kernel = build_kernel(len(steps), unit, stored, state.inlined, rounds=fusion.program.many_threads)
            if state.options.verify:
                verify(kernel, "building")
        written = {node.name for node in stored}
        by_name = _nodes_by_name(fusion, unit)
        reads = tuple(by_name[b.name] for b in kernel.buffers if b.name not in written)
        steps.append(KernelStep(kernel, tuple(stored), reads))
    return replace(state, steps=tuple(steps))


def split_loops(state: Scheduling) -> Scheduling | NothingToDo:
    """Split loops so that quotients and remainders of their variables become variables.

    >>> example("split_loops", lambda x: x.t().reshape(16) + x.reshape(16))
    - for x1 in 16:
    - v0 = arg0_1[(x1 % 4)*4 + (x1 // 4)]
    - v1 = arg0_1[x1]
    + for x1h in 4:
    + for x1l in 4:
    ...
    + add__1[x1h*4 + x1l] = v2
    """
    return _each_kernel(state, loops.split_loops, "no index has a quotient or remainder of a loop variable")


def order_loops(state: Scheduling) -> Scheduling | NothingToDo:
    """Order loops from the largest stride to the smallest.

    >>> example("order_loops", lambda x: x.t() * 2)
    + for x2 in 4:
    - for x2 in 4:
    """
    ordered = loops.order_loops if state.program.many_threads else loops.order_for_vectors
    return _each_kernel(state, ordered, "all loops are ordered by stride")


def merge_loops(state: Scheduling) -> Scheduling | NothingToDo:
    """Merge adjacent loops that every address walks through as one loop.

    >>> example("merge_loops", lambda x: x * 2)
    - for x1 in 4:
    - for x2 in 4:
    - v0 = arg0_1[x1*4 + x2]
    + for x1 in 16:
    + v0 = arg0_1[x1]
    - mul__0[x1*4 + x2] = v2
    + mul__0[x1] = v2
    """
    return _each_kernel(state, loops.merge_loops, "no two loops walk through memory as one")


def rename_loops(state: Scheduling) -> Scheduling | NothingToDo:
    """Rename loops by their positions, so that equal kernels have equal text.

    >>> example("rename_loops", lambda x: x.sum(1))
    - for x1 in 4:
    - over x2 in 4:
    - v0 = arg0_1[x1*4 + x2]
    + for p0 in 4:
    + over r0 in 4:
    ...
    + sum_1__0[p0] = v1
    """
    return _each_kernel(state, loops.rename_loops, "there is no kernel with loops")


def find_sizes(state: Scheduling) -> Scheduling | NothingToDo:
    """List the symbolic sizes that each kernel takes as arguments.

    >>> example("find_sizes", lambda x: x * 2, dynamic=True)
    - kernel kernel_0(arg0_1: float32[s0*s0], mul__0: float32[s0*s0]):
    + kernel kernel_0(arg0_1: float32[s0*s0], mul__0: float32[s0*s0], s0):
    """
    changed = _each_kernel(state, loops.find_sizes, "no kernel has symbolic sizes")
    for step in state.ordered if isinstance(changed, NothingToDo) else changed.ordered:
        if state.options.verify and _has_loops(step):
            with about(*step.kernel.origins):
                verify(step.kernel, "loop passes")
    return changed


def _each_kernel(
    state: Scheduling, change: Callable[[Kernel], Kernel], unchanged: str
) -> Scheduling | NothingToDo:
    """Change the loops of each kernel. A template may fix the loops of its kernels."""
    steps: list[Step] = []
    changed = False
    for step in state.ordered:
        if not _has_loops(step):
            steps.append(step)
            continue
        old = step.kernel
        with about(*old.origins):
            new = change(old)
        changed = changed or (old.outer, old.inner, old.sizes) != (new.outer, new.inner, new.sizes)
        steps.append(replace(step, kernel=new))
    return replace(state, steps=tuple(steps)) if changed else NothingToDo(unchanged)


def _has_loops(step: Step) -> TypeGuard[KernelStep]:
    """Whether the step is a kernel whose loops passes may change."""
    return isinstance(step, KernelStep) and step.kernel.roles is None


def share_scatter_memory(state: Scheduling) -> Scheduling | NothingToDo:
    """Write the start value of each scatter into the memory that the scatter then changes.

    >>> example("share_scatter_memory", lambda x, i: x.index_add(0, i, x))
    - kernel kernel_0(arg0_1: float32[16], index_add__0: float32[16]):
    + kernel kernel_0(arg0_1: float32[16], index_add__1: float32[16]):
    - index_add__0[p0] = v0
    + index_add__1[p0] = v0
    - kernel_0: index_add; reads arg0_1; stores index_add__0
    ...
    + kernel_1: index_add; reads arg1_1, arg0_1, index_add__1; stores
    """
    if not any(isinstance(node, Scatter) for node in _stored_nodes(state.ordered)):
        return NothingToDo("no kernel scatters")
    return replace(state, steps=tuple(share_memory(state.ordered)))


def chain_scatters(state: Scheduling) -> Scheduling | NothingToDo:
    """Drop the copies between scatters that follow each other.

    >>> example("chain_scatters", lambda x, i: x.index_add(0, i, x).index_add(0, i, x))
    - kernel kernel_0(arg0_1: float32[16], index_add__1: float32[16]):
    + kernel kernel_0(arg0_1: float32[16], index_add_1__3: float32[16]):
    - index_add__1[p0] = v0
    + index_add_1__3[p0] = v0
    - kernel kernel_1(arg1_1: int64[4], arg0_1: float32[16], index_add__1: float32[16]):
    ...
    + kernel_1: index_add; reads arg1_1, arg0_1, index_add_1__3; stores
    """
    steps = tuple(drop_copies(state.program, state.ordered))
    if _same(steps, state.ordered):
        return NothingToDo("no scatter follows a scatter")
    return replace(state, steps=steps)


def write_inputs(state: Scheduling) -> Scheduling | NothingToDo:
    """Let kernels write new values of inputs directly, where no step reads the old value afterwards.

    >>> example("write_inputs", lambda x, y: (x.mul_(2), y.exp())[1])
    - kernel kernel_0(arg0_1: float32[16], mul__0: float32[16]):
    + kernel kernel_0(arg0_1: float32[16]):
    - mul__0[p0] = v2
    + arg0_1[p0] = v2
    - kernel_0: mul; reads arg0_1; stores mul__0
    + kernel_0: mul; reads arg0_1; stores
    - copy mul__0 into arg0_1
    """
    if not state.program.mutations:
        return NothingToDo("no input has a new value")
    steps, copies = write_in_place(state.program, state.ordered)
    if len(copies) == len(state.copies):
        return NothingToDo("the old values are read after the new ones are known")
    return replace(state, steps=tuple(steps), copies=copies)


def sum_columns(state: Scheduling) -> Scheduling | NothingToDo:
    """Let kernels over rows begin sums over the columns of the same elements.

    >>> example("sum_columns", lambda x: (x.softmax(1), x.sum(0)), (4096, 64))
    - # _softmax
    ...
    - v0 = x_1[p0*1024 + p1 + r0*64]
    - v1 = reduce.sum(v0): float32
    - sum_1__4_parts[p0*64 + p1] = v1
    + sum_1__4_parts[(p0 // 16)*64 + r0] add= v0
    ...
    """
    if not state.program.many_threads:
        return NothingToDo("the kernels are for the CPU")
    steps = tuple(sum_columns_in_rows(state.ordered))
    if len(steps) == len(state.ordered):
        return NothingToDo("no kernel over rows reads what a sum over columns reads")
    return replace(state, steps=steps)


def combine_launches(state: Scheduling) -> Scheduling | NothingToDo:
    """Launch small kernels of a GPU together if none of them needs the result of another.

    >>> example("combine_launches", lambda x, y: (x.sum(), y.exp()))
    + # sum_1, exp
    + kernel kernel_0(x_1: float32[16], sum_1__0: float32[1], y_1: float32[16], exp__1: float32[16]):
    - kernel_0: sum_1; reads x_1; stores sum_1__0
    - kernel_1: exp; reads y_1; stores exp__1
    + kernel_0: sum_1, exp; reads x_1, y_1; stores sum_1__0, exp__1
    """
    if not state.program.many_threads:
        return NothingToDo("the kernels are for the CPU")
    steps = tuple(run_side_by_side(state.ordered, state.kept))
    if _same(steps, state.ordered):
        return NothingToDo("no two small kernels can run side by side")
    return replace(state, steps=steps)


def repeat_parts(state: Scheduling) -> Scheduling | NothingToDo:
    """Repeat the schedule of a part for the parts that are equal.

    >>> example("repeat_parts", lambda a, b, c, d: [x.mul_(2) for x in (a, b, c, d)][:0])
    + # mul_1
    + kernel kernel_1(arg1_1: float32[16]):
    + for p0 in 16:
    ...
    + kernel_1: mul_1; reads arg1_1; stores
    + kernel_2: mul_2; reads arg2_1; stores
    + kernel_3: mul_3; reads arg3_1; stores
    """
    if state.whole is None:
        return NothingToDo("the program has no equal parts")
    steps, copies = with_copies(state.ordered, state.copies, state.parts)
    return replace(state, program=state.whole, steps=steps, copies=copies)


def _stored_nodes(steps: Iterable[Step]) -> Iterator[Node]:
    """Yield the tensors that kernels store."""
    return (node for step in steps if isinstance(step, KernelStep) for node in step.stored)


# The order matters. Usage decides what can be inlined, inlining looks at orders in memory, and fusion sees only tensors
# that are not inlined. Loops are split before they are ordered, because the parts of a split loop have strides of their
# own, and merged after that, because only neighbours merge. Names and sizes come last, when the loops are final. The
# scatter passes work on built kernels: they must know whether a kernel only copies. Launches are combined when it is
# known which inputs a kernel writes; sums over columns move first, because small kernels wait for others.
SCHEDULE: Final = (
    Pass("set_copies_aside", set_copies_aside),
    Pass("find_uses", find_uses),
    Pass("lay_out_tensors", lay_out_tensors),
    Pass("inline_tensors", inline_tensors),
    Pass("fuse_tensors", fuse_tensors),
    Pass("order_units", order_units),
    Pass("build_kernels", build_kernels),
    Pass("split_loops", split_loops),
    Pass("order_loops", order_loops),
    Pass("merge_loops", merge_loops),
    Pass("rename_loops", rename_loops),
    Pass("find_sizes", find_sizes),
    Pass("share_scatter_memory", share_scatter_memory),
    Pass("chain_scatters", chain_scatters),
    Pass("write_inputs", write_inputs),
    Pass("sum_columns", sum_columns),
    Pass("combine_launches", combine_launches),
    Pass("repeat_parts", repeat_parts),
)


def text(state: Scheduling) -> str:
    """Return the program with the facts about its tensors; after ``build_kernels``, return the kernels."""
    if state.steps is not None:
        kernels = (show_kernel(step.kernel) for step in state.steps if isinstance(step, KernelStep))
        return "\n".join([*kernels, show_plan(_plan_of(state))]) + "\n"
    return show_program(state.program) + "".join(f"# {line}\n" for line in _usage_lines(state))


def _usage_lines(state: Scheduling) -> Iterator[str]:
    """Yield the facts about tensors that passes have found, for ``text``."""
    uses = state.usage
    if uses is None:
        return
    yield f"read by something: {_names(uses.live)}"
    yield f"in memory: {_names(sorted(uses.required, key=lambda node: node.name))}"
    yield from (f"order of operands: {node.name}" for node in uses.live if node in state.laid_out)
    yield from (f"inlined: {node.name}" for node in uses.live if node in state.inlined)
    for unit in state.units:
        if isinstance(unit, Group):
            yield f"kernel over {', '.join(str(var.extent) for var in unit.space)}: {_names(unit.placed)}"
        else:
            yield f"call: {show_call(unit)}"


def _names(nodes: Iterable[Node]) -> str:
    """Return names of tensors, separated by commas."""
    return ", ".join(node.name for node in nodes) or "nothing"


def _nodes_by_name(fusion: Fusion, group: Group) -> dict[str, Node]:
    """Return the tensors that a group reads, by name."""
    return {read.node.name: read.node for node in group.placed for read in fusion.reads(node)}


def _stored(fusion: Fusion, group: Group) -> list[Computed]:
    """Return the group's tensors that are read outside the group, in the graph's order."""
    needed = {n for n in group.placed if n in fusion.usage.required}
    for node in group.placed:
        if node in needed:
            continue
        readers = fusion.readers.get(node, [])
        if any(not _inside(fusion, reader, group) for reader in readers):
            needed.add(node)
    return sorted(needed, key=lambda n: fusion.position[id(n)])


def _inside(fusion: Fusion, reader: Group, group: Group) -> bool:
    """Whether ``reader`` has become part of ``group``."""
    return fusion.unit[next(iter(reader.placed))] is group
