"""Scatters into an input that the graph mutates, a cache of keys say: done in the input itself, without a copy of it.

The scatter's kernel checks all its indices before it writes, and writes nothing once an index of the graph was out of range:
the graph then runs in eager, which raises. For this run the input must still hold what it held, or what the scatter
has put there, so indices that are checked later forbid sums.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fxstack_inductor.ir.kernel import Load
from fxstack_inductor.ir.nodes import ExternCall, Node, View
from fxstack_inductor.schedule.realise import base_of
from fxstack_inductor.schedule.steps import KernelStep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fxstack_inductor.ir.kernel import Kernel
    from fxstack_inductor.ir.nodes import Input
    from fxstack_inductor.ir.ordered import Scatter
    from fxstack_inductor.schedule.steps import Step


def may_scatter(steps: Sequence[Step], copied: int, target: Input, value: Scatter) -> bool:
    """Whether ``value``, begun as a copy of ``target`` in step ``copied``, can be ``target`` from the start."""
    step = steps[copied]
    if not isinstance(step, KernelStep) or not is_copy(step.kernel, target.name, value.name):
        return False
    for k, other in enumerate(steps):
        read = {base_of(node) for node in other.reads}
        aliases = isinstance(other, ExternCall) and other.alias
        if (target in read and (k > copied or aliases)) or (value in read and aliases):
            return False
    place = next(k for k, s in enumerate(steps) if scatters_into(s, value.name))
    later = any(isinstance(s, KernelStep) and s.kernel.checked for s in steps[place + 1 :])
    return not later or (value.op == "set" and value.dtype.is_floating_point)


def is_copy(kernel: Kernel, source: str, target: str) -> bool:
    """Whether all that ``kernel`` does is to copy each element to its own place."""
    if len(kernel.stores) != 1:
        return False
    (store,) = kernel.stores
    value = kernel.values[store.value]
    return (
        isinstance(value, Load)
        and (value.buffer, value.mask, value.index) == (source, None, store.index)
        and store.buffer == target
        and not store.op
    )


def scatters_into(step: Step, name: str) -> bool:
    return isinstance(step, KernelStep) and any(
        store.op and store.buffer == name for store in step.kernel.stores
    )


def guarded(step: KernelStep, names: frozenset[str]) -> KernelStep:
    """``step``, with care if it scatters into one of the inputs ``names``."""
    if any(scatters_into(step, name) for name in names):
        return replace(step, kernel=replace(step.kernel, guarded=True))
    return step


def redirect(step: Step, moved: Mapping[Node, Input]) -> None:
    """Have a call read inputs in the place of the scatters that they now hold."""
    if isinstance(step, ExternCall):
        step.args = tuple(_redirected(arg, moved) for arg in step.args)
        step.kwargs = {name: _redirected(arg, moved) for name, arg in step.kwargs.items()}
        step.reads = tuple(_redirected(node, moved) for node in step.reads)


def _redirected(value: Any, moved: Mapping[Node, Input]) -> Any:
    if isinstance(value, View):
        last = value
        while isinstance(last.base, View):
            last = last.base
        last.base = moved.get(last.base, last.base)
        return value
    if isinstance(value, Node):
        return moved.get(value, value)
    if isinstance(value, (tuple, list)):
        return type(value)(_redirected(part, moved) for part in value)
    return value
