"""When the tensors of a schedule are in memory, for passes that change how long a tensor is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from fxstack_inductor.ir.nodes import ExternCall, Node
from fxstack_inductor.schedule.fusion.inlining import base_of
from fxstack_inductor.schedule.memory import bytes_alive, bytes_of, used
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
        return sum(bytes_of(node) for node in reads - self.inputs if self.last[node] < position)


def lifetimes(steps: Sequence[Step], kept: AbstractSet[Node]) -> Lifetimes:
    """Return the lifetimes of the tensors of ``steps``, of which those in ``kept`` live to the end."""
    last = last_uses(steps)
    last.update(dict.fromkeys(kept & last.keys(), len(steps)))
    made = [(node, position) for position, step in enumerate(steps) for node in _made_by(step)]
    alive = bytes_alive((position, last[node], bytes_of(node)) for node, position in made)
    inputs = last.keys() - {node for node, _ in made}
    return Lifetimes(last, inputs, (alive + [0] * len(steps))[: len(steps)])


def last_uses(steps: Sequence[Step]) -> dict[Node, int]:
    """Return the position of the last step that uses each tensor, or uses a view of the tensor that ATen makes."""
    last = {base_of(node): position for position, step in enumerate(steps) for node in used(step)}
    for step in reversed(steps):
        if isinstance(step, ExternCall) and step.alias:
            until = max((last[base_of(output)] for output in step.outputs), default=-1)
            last.update({base: max(last[base], until) for base in map(base_of, step.reads)})
    return last


def _made_by(step: Step) -> Iterable[Node]:
    """Return the tensors for which ``step`` takes new memory."""
    if isinstance(step, KernelStep):
        return step.stored
    return step.outputs if isinstance(step, ExternCall) and not step.alias else ()
