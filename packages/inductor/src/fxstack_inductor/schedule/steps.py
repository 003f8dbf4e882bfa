"""The steps of a schedule: kernel launches, ATen calls, and Python calls of the host."""

from __future__ import annotations

from dataclasses import dataclass

from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import Computed, Extern, ExternCall, Node
from fxstack_inductor.lower.program import HostCall, Mutation, Program
from fxstack_inductor.schedule.fusion.loop_matching import Refusal
from fxstack_interchange.show import short_repr


@dataclass(frozen=True)
class KernelStep:
    """A launch. ``stored``: tensors it creates; ``reads``: tensors it reads, and inputs it writes."""

    kernel: Kernel
    stored: tuple[Computed | Extern, ...]
    reads: tuple[Node, ...]


Step = KernelStep | ExternCall | HostCall


@dataclass(frozen=True, repr=False)
class Plan:
    """The schedule of a graph: its steps in order, and the fusions that were refused."""

    program: Program
    steps: tuple[Step, ...]
    refusals: tuple[tuple[str, str, Refusal], ...]
    copies: tuple[Mutation, ...]
    """Mutations that no kernel performs; the host copies them."""

    __repr__ = short_repr
