"""Print the schedule of a graph as readable text."""

from __future__ import annotations

from typing import Any

from fxstack_inductor.ir.nodes import Node
from fxstack_inductor.lower.program import show_call
from fxstack_inductor.schedule.steps import KernelStep, Plan, Step


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
    if isinstance(step, KernelStep):
        stored = ", ".join(node.name for node in step.stored)
        return f"{step.kernel.name}: {', '.join(step.kernel.origins)}; reads {_names(step.reads)}; stores {stored}"
    return show_call(step)


def _names(nodes: tuple[Any, ...]) -> str:
    return ", ".join(node.name for node in nodes if isinstance(node, Node))
