"""Scatters into an input that the graph mutates, a cache of keys say: done in the input itself, without a copy of it.

The scatter's kernel checks all its indices before it writes, and writes nothing once an index of the graph was out of range:
the graph then runs in eager, which raises. For this run the input must still hold what it held, or what the scatter
has put there, so indices that are checked later forbid sums.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from fxstack_inductor.ir.kernel import Load
from fxstack_inductor.ir.nodes import Computed, ExternCall, Node, View
from fxstack_inductor.ir.ordered import Scatter
from fxstack_inductor.schedule.fusion.inlining import base_of
from fxstack_inductor.schedule.steps import KernelStep

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from fxstack_inductor.ir.kernel import Kernel
    from fxstack_inductor.ir.nodes import Input
    from fxstack_inductor.lower.program import Program
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
    places = [k for k, s in enumerate(steps) if scatters_into(s, value.name)]
    later = any(isinstance(s, KernelStep) and s.kernel.checked for s in steps[places[0] + 1 :])
    return not later or (_only_sets(steps, value.name) and value.dtype.is_floating_point)


def _only_sets(steps: Sequence[Step], name: str) -> bool:
    kernels = [step.kernel for step in steps if isinstance(step, KernelStep)]
    return all(s.op in {"", "set"} for kernel in kernels for s in kernel.stores if s.buffer == name)


def chained(program: Program, steps: Sequence[Step]) -> list[Step]:
    """Drop copies between scatters that follow each other: one takes over what it begins with, if nothing else reads that."""
    kept = {base_of(v) for v in program.outputs if isinstance(v, Node)}
    kept |= {m.value for m in program.mutations}
    makers = {n: k for k, s in enumerate(steps) if isinstance(s, KernelStep) for n in s.stored}
    readers = _readers(steps)
    later: dict[Node, Node] = {}
    """By the tensor that is taken over: the scatter that does so."""
    dropped: set[int] = set()
    for node, copied in makers.items():
        earlier = _started_with(steps[copied], node, makers) if isinstance(node, Scatter) else None
        if earlier is None or earlier in kept or earlier in later:
            continue
        if all(_may_go(k, steps[k], copied) for k in readers[earlier] if k not in dropped):
            later[earlier] = node
            dropped.add(copied)
    # The last of each chain, from the end: every step is renamed once, however long the chain is.
    for taken, by in reversed(later.items()):
        later[taken] = later.get(by, by)
    return [_renamed(s, later) for k, s in enumerate(steps) if k not in dropped]


def _readers(steps: Sequence[Step]) -> dict[Node, list[int]]:
    """The positions of the steps that read a tensor."""
    found: dict[Node, list[int]] = defaultdict(list)
    for k, step in enumerate(steps):
        for node in dict.fromkeys(map(base_of, step.reads)):
            found[node].append(k)
    return found


def _started_with(step: Step, node: Node, made: Container[Node]) -> Computed | None:
    """The tensor among those ``made`` by kernels that ``step`` does nothing but copy for ``node``."""
    assert isinstance(step, KernelStep)
    for source in step.reads:
        if source in made and isinstance(source, Computed) and source.layout == node.layout:
            return source if is_copy(step.kernel, source.name, node.name) else None
    return None


def _may_go(position: int, step: Step, copied: int) -> bool:
    """Whether ``step``, which reads a tensor, leaves it to be changed from step ``copied`` on."""
    return position == copied or (isinstance(step, KernelStep) and position < copied)


def _renamed(step: Step, later: Mapping[Node, Node]) -> Step:
    if not isinstance(step, KernelStep):
        return step
    names = {n.name: later[n].name for n in (*step.stored, *step.reads) if n in later}
    if not names:
        return step
    stored = tuple(cast("Computed", later.get(n, n)) for n in step.stored)
    reads = tuple(dict.fromkeys(later.get(n, n) for n in step.reads))
    return KernelStep(renamed(step.kernel, names), stored, reads)


def renamed(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """``kernel`` with other buffers in the place of some; one that it has twice then, it has once."""
    values = tuple(
        replace(v, buffer=names.get(v.buffer, v.buffer)) if isinstance(v, Load) else v for v in kernel.values
    )
    stores = tuple(replace(s, buffer=names.get(s.buffer, s.buffer)) for s in kernel.stores)
    buffers = {b.name: b for b in (replace(b, name=names.get(b.name, b.name)) for b in kernel.buffers)}
    return replace(kernel, values=values, stores=stores, buffers=tuple(buffers.values()))


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


def _redirected(value: object, moved: Mapping[Node, Input]) -> Any:
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
