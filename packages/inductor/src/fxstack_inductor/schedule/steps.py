"""What a schedule consists of: launches of kernels, ATen calls, and Python that the host runs."""

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
    """A launch. ``stored`` are the tensors that it makes, ``reads`` those that it reads, and inputs that it writes to."""

    kernel: Kernel
    stored: tuple[Computed | Extern, ...]
    reads: tuple[Node, ...]


Step = KernelStep | ExternCall | HostCall
