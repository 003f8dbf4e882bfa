"""Choose the vector loop of points that read at places from memory: the loop along which these reads are contiguous.

Along another loop, each element comes from a cache line of its own, and each place is checked again for each vector.
"""

from __future__ import annotations

from dataclasses import replace

from fxstack_inductor.codegen.c.pointwise.tiles import crossing
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.kernel import Kernel, Load, Loop, operands


def along_far_reads(kernel: Kernel) -> Kernel:
    """Return ``kernel`` with another loop last if reads at places from memory are then contiguous, and the rest is copied."""
    if kernel.inner or kernel.scatters or _contiguous(kernel, kernel.outer[-1:]):
        return kernel
    for loop in kernel.outer[:-1]:
        moved = replace(kernel, outer=(*(other for other in kernel.outer if other is not loop), loop))
        if _contiguous(kernel, (loop,)) and _all_copied(moved):
            return moved
    return kernel


def _contiguous(kernel: Kernel, loops: tuple[Loop, ...]) -> bool:
    """Whether a read at a place from memory is contiguous along one of ``loops``, which does not change the place."""
    far = [v for v in kernel.values if isinstance(v, Load) and operands(v)]
    return any(
        v.index.coefficient(loop.var) == 1 and analyse(kernel).varying(loop).isdisjoint(operands(v))
        for v in far
        for loop in loops
    )


def _all_copied(kernel: Kernel) -> bool:
    """Whether copies of tiles have all accesses that jump from point to point of the last loop."""
    found = crossing(kernel)
    if found is None:
        return False
    apart = [v.index for k, v in enumerate(kernel.values) if isinstance(v, Load) and k not in found.loads]
    apart += [store.index for store in kernel.stores if store not in found.stores]
    steps = (index.coefficient(kernel.outer[-1].var) for index in apart)
    return all(step is not None and step.as_int() in {0, 1} for step in steps)
