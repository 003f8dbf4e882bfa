"""The steps of a schedule: kernel launches, ATen calls, and Python calls of the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fxstack_inductor.ir.nodes import ExternCall
from fxstack_inductor.lower.program import HostCall

if TYPE_CHECKING:
    from fxstack_inductor.ir.kernel import Kernel
    from fxstack_inductor.ir.nodes import Computed, Extern, Node


@dataclass(frozen=True)
class KernelStep:
    """A launch. ``stored``: tensors it creates; ``reads``: tensors it reads, and inputs it writes."""

    kernel: Kernel
    stored: tuple[Computed | Extern, ...]
    reads: tuple[Node, ...]


Step = KernelStep | ExternCall | HostCall
