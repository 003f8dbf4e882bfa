"""Let kernels of a GPU write results into the memory of operands that no later step needs.

The kernel must read an element of the operand only to write the same element, and a single program must do it. The result
of an operator of ATen and the result of another kernel may be overwritten; what the program returns may not, nor what a
view that ATen made may share.
"""

# Limits: the result of a reduction over rows is never written over the rows, although a program that holds a whole row could
# do so; nor is a result that the program returns written over an operand.

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from fxstack_inductor.ir.kernel import Scan
from fxstack_inductor.ir.nodes import Argument, Computed, ExternCall, Node
from fxstack_inductor.lower.nested.calls import NestedCall
from fxstack_inductor.schedule.fusion.inlining import base_of
from fxstack_inductor.schedule.fusion.inplace import read_by_one_program, same_elements
from fxstack_inductor.schedule.fusion.inplace_scatter import redirect, rename_buffers
from fxstack_inductor.schedule.lifetimes import last_uses
from fxstack_inductor.schedule.memory import SEE_STORAGE
from fxstack_inductor.schedule.steps import KernelStep, Plan, Step


def reuse_memory(plan: Plan) -> Plan:
    """Return the schedule with results written over operands. It must be the last: no step may move afterwards."""
    steps, program = plan.steps, plan.program
    last = last_uses(steps)
    values = [v for v in program.outputs if isinstance(v, Node)]
    own = _own_memory(steps) - {base_of(v) for v in (*values, *(m.value for m in program.mutations))}
    moved: dict[Node, Node] = {}
    """Maps a result to the tensor whose memory holds it."""
    done: list[Step] = []
    for position, step in enumerate(steps):
        if isinstance(step, KernelStep):
            dying = [node for node in step.reads if node in own and last[node] == position]
            for result, operand in _pairs(step, dying, own):
                moved[result] = moved.get(operand, operand)
            done.append(_renamed(step, moved))
        else:
            redirect(step, moved)
            done.append(step)
    return replace(plan, steps=tuple(done)) if moved else plan


def _own_memory(steps: Sequence[Step]) -> set[Node]:
    """Return the tensors whose memory is known to belong to no other tensor, and which only kernels and plain calls use."""
    own: set[Node] = set()
    shared: set[Node] = set()
    for step in steps:
        if isinstance(step, KernelStep):
            own.update(step.stored)
        elif isinstance(step, ExternCall) and not isinstance(step, NestedCall) and not step.alias:
            own.update(node for node in step.outputs if node.strided and not isinstance(node, Argument))
            shared.update(map(base_of, step.reads) if step.target in SEE_STORAGE else ())
        else:
            shared.update(map(base_of, step.reads))
            shared.update(step.outputs if isinstance(step, ExternCall) else ())
    return own - shared


def _pairs(step: KernelStep, dying: Sequence[Node], own: AbstractSet[Node]) -> Iterable[tuple[Node, Node]]:
    """Yield each result of a kernel with the operand that it may overwrite; every operand once."""
    kernel = step.kernel
    if kernel.template or kernel.parts or kernel.rows or any(isinstance(v, Scan) for v in kernel.values):
        return
    free = list(dying)
    for result in step.stored:
        for operand in free if result in own and isinstance(result, Computed) else ():
            if operand.layout == result.layout and _may_overwrite(step, operand.name, result.name):
                free.remove(operand)
                yield result, operand
                break


def _may_overwrite(step: KernelStep, operand: str, result: str) -> bool:
    """Whether a kernel needs no element of ``operand`` after it has written the same element of ``result``."""
    kernel = step.kernel
    if operand in kernel.written or operand not in kernel.read or not same_elements(kernel, operand, result):
        return False
    return read_by_one_program(kernel, operand)


def _renamed(step: KernelStep, moved: Mapping[Node, Node]) -> KernelStep:
    """Return ``step`` with each tensor of ``moved`` replaced by the tensor that holds it."""
    names = {node.name: moved[node].name for node in (*step.stored, *step.reads) if node in moved}
    if not names:
        return step
    stored = tuple(node for node in step.stored if node not in moved)
    reads = [
        moved.get(node, node) for node in (*step.reads, *step.stored) if node in moved or node in step.reads
    ]
    return KernelStep(rename_buffers(step.kernel, names), stored, tuple(dict.fromkeys(reads)))
