"""When the tensors of a schedule are in memory, for passes that change how long a tensor is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from fxstack_inductor.ir.nodes import ExternCall, Node
from fxstack_inductor.schedule.build import extent
from fxstack_inductor.schedule.fusion.inlining import base_of
from fxstack_inductor.schedule.memory import used
from fxstack_inductor.schedule.steps import KernelStep, Step

# Limits: tensors of symbolic size count as nothing, and so do inputs, because a program does not know which of its inputs
# the caller releases.


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The last uses of tensors, and the bytes that the steps have allocated."""

    last: Mapping[Node, int]
    """The position of the last step that uses a tensor or a view of it."""
    inputs: AbstractSet[Node]
    """The tensors that no step computes."""
    alive: Sequence[int]
    """The bytes in memory during each step, without the program's inputs."""

    def held(self, steps: Iterable[KernelStep], position: int) -> int:
        """Return the bytes of computed tensors that only ``steps`` need, if these run no sooner than step ``position``."""
        reads = {base_of(node) for step in steps for node in step.reads}
        return sum(_bytes(node) for node in reads - self.inputs if self.last[node] < position)


def lifetimes(steps: Sequence[Step], kept: AbstractSet[Node]) -> Lifetimes:
    """Return the lifetimes of the tensors of ``steps``, of which those in ``kept`` live to the end."""
    last = {base_of(node): position for position, step in enumerate(steps) for node in used(step)}
    for step in reversed(steps):
        if isinstance(step, ExternCall) and step.alias:
            until = max((last[output] for output in step.outputs), default=-1)
            last.update({base: max(last[base], until) for base in map(base_of, step.reads)})
    last.update(dict.fromkeys(kept & last.keys(), len(steps)))
    change = [0] * (len(steps) + 2)
    inputs = set(last)
    for position, step in enumerate(steps):
        for node in _made_by(step):
            inputs.discard(node)
            change[position] += _bytes(node)
            change[last[node] + 1] -= _bytes(node)
    alive, total = [], 0
    for bytes_more in change[: len(steps)]:
        total += bytes_more
        alive.append(total)
    return Lifetimes(last, inputs, alive)


def _made_by(step: Step) -> Iterable[Node]:
    """Return the tensors for which ``step`` takes new memory."""
    if isinstance(step, KernelStep):
        return step.stored
    return step.outputs if isinstance(step, ExternCall) and not step.alias else ()


def _bytes(node: Node) -> int:
    """Return the bytes of a tensor; 0 if its size is symbolic."""
    return (extent(node).as_int() or 0) * int(node.layout.dtype.itemsize)
