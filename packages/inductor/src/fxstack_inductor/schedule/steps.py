"""The steps of a schedule: kernel launches, ATen calls, and Python calls of the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import Computed, Extern, ExternCall, Node
from fxstack_inductor.lower.nested.calls import NestedCall
from fxstack_inductor.lower.nested.graphs import NestedGraph, nested_graphs
from fxstack_inductor.lower.nested.results import Results
from fxstack_inductor.lower.program import HostCall, Mutation, Program, SymbolBinding, show_call
from fxstack_inductor.schedule.fusion.loop_matching import Refusal
from fxstack_interchange.format.show import short_repr


@dataclass(frozen=True)
class KernelStep:
    """A launch of a kernel, which creates the tensors ``stored``."""

    kernel: Kernel
    stored: tuple[Computed | Extern, ...]
    reads: tuple[Node, ...]
    """Tensors that the kernel reads, and inputs that it writes."""


@dataclass(eq=False, slots=True)
class TemplateCall(ExternCall):
    """A call that the schedule replaces by a launch of one kernel of a template."""

    build: Callable[[Any], KernelStep] = field(kw_only=True)
    """Returns the launch of the call."""


@dataclass(frozen=True, eq=False)
class Body:
    """A function that an operator of the graph calls, as a part of the host program.

    Its results are written into memory that the caller provides.
    """

    name: str
    """The name of the function in the program, for example ``nested_0``."""
    plan: Plan
    results: Results

    @property
    def bindings(self) -> list[SymbolBinding]:
        """The symbols that the operands determine; the caller passes their values, in order."""
        program = self.plan.program
        return [binding for binding in program.bindings if binding.source in program.parameters]


Step = KernelStep | ExternCall | HostCall


@dataclass(frozen=True, repr=False)
class Plan:
    """The schedule of a graph: its steps in order, and the fusions that were refused."""

    program: Program
    steps: tuple[Step, ...]
    refusals: tuple[tuple[str, str, Refusal], ...]
    """Pairs of tensors that fusion refused to compute in one kernel, with the reason."""
    copies: tuple[Mutation, ...]
    """Mutations that no kernel performs; the host copies them."""
    boxed: bool = False
    """Whether the program's argument is one list, which it empties: inputs can be freed after their last use."""
    keeps_memory: bool = True
    """Whether the memory of large tensors that die in the call is kept for the next call."""

    __repr__ = short_repr


def bodies_of(call: NestedCall) -> list[Body]:
    """Return the functions of a loop or branch."""
    return [body for body in call.bodies if isinstance(body, Body)]


def all_bodies(plan: Plan) -> list[Body]:
    """Return the functions in loops and branches of ``plan`` and of these functions, each once, callees first."""
    found: dict[str, Body] = {}
    for call in plan.steps:
        for body in bodies_of(call) if isinstance(call, NestedCall) else ():
            found.update({inner.name: inner for inner in (*all_bodies(body.plan), body)})
    return list(found.values())


def all_kernels(plan: Plan) -> list[Kernel]:
    """Return the kernels of ``plan`` and of the functions in its loops and branches."""
    plans = [plan, *(body.plan for body in all_bodies(plan))]
    return [step.kernel for each in plans for step in each.steps if isinstance(step, KernelStep)]


def called_graphs(plan: Plan) -> list[NestedGraph]:
    """Return the functions that the operators of ``plan`` call, each once."""
    calls = (step for step in plan.steps if isinstance(step, ExternCall))
    return list(dict.fromkeys(graph for call in calls for graph in nested_graphs(call.args)))


def show_plan(plan: Plan) -> str:
    """Return the steps in order of execution, then the fusions that were refused with their rules.

    A kernel is shown with the operators that it computes, what it reads and what it stores.
    """
    lines = [_step(step) for step in plan.steps]
    lines += [f"copy {copy.value.name} into {copy.target.name}" for copy in plan.copies]
    if plan.refusals:
        lines += ["", "refused fusions:"]
        lines += [
            f"  {a} with {b}: {r.rule}{f' ({r.detail})' if r.detail else ''}" for a, b, r in plan.refusals
        ]
    return "\n".join(lines)


def _step(step: Step) -> str:
    """Return one step as a line of text."""
    if isinstance(step, KernelStep):
        stored = ", ".join(node.name for node in step.stored)
        return f"{step.kernel.name}: {', '.join(step.kernel.origins)}; reads {_names(step.reads)}; stores {stored}"
    return show_call(step)


def _names(nodes: tuple[Any, ...]) -> str:
    """Return names of tensors, separated by commas."""
    return ", ".join(node.name for node in nodes if isinstance(node, Node))
