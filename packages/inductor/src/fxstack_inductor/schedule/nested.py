"""Schedules of functions that operators call: what makes a schedule a part of the program around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import ExternCall, Input, Node, View
from fxstack_inductor.lower.layouts import strided_view
from fxstack_inductor.lower.nested.calls import NestedCall
from fxstack_inductor.lower.node_queries import leaves
from fxstack_inductor.lower.program import HostCall, HostValue, Program
from fxstack_inductor.schedule.steps import KernelStep, Plan, Step


def with_kernel_names(plan: Plan, prefix: str) -> Plan:
    """Return ``plan`` with kernel names that begin with ``prefix``, so that they differ from those of other schedules."""
    steps: list[Step] = []
    for step in plan.steps:
        if isinstance(step, KernelStep):
            name = f"{prefix}_{step.kernel.name.removeprefix('kernel_')}"
            steps.append(replace(step, kernel=replace(step.kernel, name=name)))
        else:
            steps.append(step)
    return replace(plan, steps=tuple(steps))


def unbound_symbols(plan: Plan) -> set[str]:
    """Return the symbols that ``plan`` reads although neither an operand nor a step gives them."""
    bound = {binding.symbol for binding in plan.program.bindings}
    read = {v.name for expr in _sizes(plan) for v in expr.variables}
    kernels = (step.kernel for step in plan.steps if isinstance(step, KernelStep))
    return (read | {size for kernel in kernels for size in kernel.sizes}) - bound


def _sizes(plan: Plan) -> Iterator[Expr]:
    """Yield the sizes, strides and numbers that the host program reads."""
    for step in plan.steps:
        if isinstance(step, KernelStep):
            yield from _of_nodes(step.stored)
            continue
        yield from _of_nodes(step.reads)
        yield from (value for value in leaves((step.args, step.kwargs)) if isinstance(value, Expr))
        if isinstance(step, ExternCall):
            yield from _of_nodes(step.outputs)
        if isinstance(step, NestedCall):
            yield from (value for value in step.form.operands if isinstance(value, Expr))


def _of_nodes(nodes: Iterable[Node]) -> Iterator[Expr]:
    """Yield the sizes, strides and offsets of tensors."""
    for node in nodes:
        yield from (*node.shape, *node.layout.stride)
        window = strided_view(node) if isinstance(node, View) else None
        if window is not None:
            yield window[1]


def takes_plain_operands(program: Program) -> bool:
    """Whether all inputs are tensors or integers: a caller passes no other number."""
    numbers = {b.source for b in program.bindings if b.dim is None}
    untensored = {name for name in program.parameters if not isinstance(program.inputs.get(name), Input)}
    values = [
        v for s in program.steps if isinstance(s, (ExternCall, HostCall)) for v in leaves((s.args, s.kwargs))
    ]
    read = {value.name for value in values if isinstance(value, HostValue)}
    return not (untensored - numbers) & read
