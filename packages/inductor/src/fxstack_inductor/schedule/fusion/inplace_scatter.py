"""Scatter directly into an input that the graph mutates (e.g. a key cache), without a copy of the input.

The scatter's kernel checks all its indices before it writes. It writes nothing if an index of the graph was
out of range: the graph then runs in eager, which raises. For this eager run, the input must hold its old
contents, or elements that the scatter would set to the same values. So a scatter that accumulates is not
allowed if a later step checks indices.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from fxstack_inductor.ir.kernel import Kernel, Load, Store
from fxstack_inductor.ir.nodes import Computed, ExternCall, Input, Node, View
from fxstack_inductor.ir.ordered import Scatter
from fxstack_inductor.lower.program import Program
from fxstack_inductor.schedule.fusion.inlining import base_of
from fxstack_inductor.schedule.steps import KernelStep, Step


def may_scatter(steps: Sequence[Step], copied: int, target: Input, value: Scatter) -> bool:
    """Whether ``value`` can scatter into ``target`` itself. Step number ``copied`` copies ``target`` for ``value``."""
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
    """Whether all stores to ``name`` replace elements; a second run then gives the same result."""
    kernels = [step.kernel for step in steps if isinstance(step, KernelStep)]
    return all(s.op in {"", "set"} for kernel in kernels for s in kernel.stores if s.buffer == name)


def drop_copies(program: Program, steps: Sequence[Step]) -> list[Step]:
    """Drop copies between consecutive scatters, if no other step reads the earlier result."""
    needed = {base_of(v) for v in program.outputs if isinstance(v, Node)}
    needed |= {m.value for m in program.mutations}
    makers = {n: k for k, s in enumerate(steps) if isinstance(s, KernelStep) for n in s.stored}
    readers = _readers(steps)
    later: dict[Node, Node] = {}
    """Maps each reused tensor to the scatter that reuses it."""
    dropped: set[int] = set()
    for node, copied in makers.items():
        earlier = _copied_tensor(steps[copied], node, makers) if isinstance(node, Scatter) else None
        if earlier is None or earlier in needed or earlier in later:
            continue
        if all(_allows_change(k, steps[k], copied) for k in readers[earlier] if k not in dropped):
            later[earlier] = node
            dropped.add(copied)
    # Resolve chains from the end, so that every step is renamed once for any length of chain.
    for tensor, user in reversed(later.items()):
        later[tensor] = later.get(user, user)
    return [_rename_tensors(s, later) for k, s in enumerate(steps) if k not in dropped]


def _readers(steps: Sequence[Step]) -> dict[Node, list[int]]:
    """Return the positions of the steps that read each tensor."""
    readers: dict[Node, list[int]] = defaultdict(list)
    for k, step in enumerate(steps):
        for node in dict.fromkeys(map(base_of, step.reads)):
            readers[node].append(k)
    return readers


def _copied_tensor(step: Step, node: Node, candidates: Container[Node]) -> Computed | None:
    """Return the tensor of ``candidates`` if ``step`` only copies that tensor to ``node``, else None."""
    assert isinstance(step, KernelStep)
    for source in step.reads:
        if source in candidates and isinstance(source, Computed) and source.layout == node.layout:
            return source if is_copy(step.kernel, source.name, node.name) else None
    return None


def _allows_change(position: int, step: Step, copied: int) -> bool:
    """Whether a tensor that ``step`` (number ``position``) reads may change from step ``copied`` on."""
    return position == copied or (isinstance(step, KernelStep) and position < copied)


def _rename_tensors(step: Step, later: Mapping[Node, Node]) -> Step:
    """Return ``step`` with each tensor of ``later`` replaced by the scatter that reuses its memory."""
    if not isinstance(step, KernelStep):
        return step
    names = {n.name: later[n].name for n in (*step.stored, *step.reads) if n in later}
    if not names:
        return step
    stored = tuple(cast("Computed", later.get(n, n)) for n in step.stored)
    reads = tuple(dict.fromkeys(later.get(n, n) for n in step.reads))
    return KernelStep(rename_buffers(step.kernel, names), stored, reads)


def rename_buffers(kernel: Kernel, names: Mapping[str, str], **changes: Any) -> Kernel:
    """Return ``kernel`` with renamed buffers, and with other fields as ``changes`` says.

    ``names``: old -> new. Buffers that get equal names are merged.
    """
    # ``replace`` takes several times as long as a constructor.
    values = tuple(
        [
            Load(names[v.buffer], v.index, v.dtype, v.mask, v.other)
            if isinstance(v, Load) and v.buffer in names
            else v
            for v in kernel.values
        ]
    )
    stores = tuple([Store(names.get(s.buffer, s.buffer), s.index, s.value, s.op) for s in kernel.stores])
    buffers = {b.name: b for b in (replace(b, name=names.get(b.name, b.name)) for b in kernel.buffers)}
    parts = tuple(rename_buffers(part, names) for part in kernel.parts)
    return replace(
        kernel, values=values, stores=stores, buffers=tuple(buffers.values()), parts=parts, **changes
    )


def is_copy_within(kernel: Kernel, names: Container[str]) -> bool:
    """Whether ``kernel`` only copies one of the buffers ``names`` onto itself."""
    return any(is_copy(kernel, s.buffer, s.buffer) for s in kernel.stores if s.buffer in names)


def is_copy(kernel: Kernel, source: str, target: str) -> bool:
    """Whether ``kernel`` only copies each element of ``source`` to the same place in ``target``."""
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
    """Whether a kernel combines elements of the buffer ``name``."""
    return isinstance(step, KernelStep) and any(
        store.op and store.buffer == name for store in step.kernel.stores
    )


def guard_scatters(step: KernelStep, names: frozenset[str]) -> KernelStep:
    """Return ``step``, with a ``guarded`` kernel if it scatters into one of the inputs ``names``."""
    if any(store.op and store.buffer in names for store in step.kernel.stores):
        return replace(step, kernel=replace(step.kernel, guarded=True))
    return step


def redirect(step: Step, moved: Mapping[Node, Node]) -> None:
    """Make a call read the tensors that now hold the results of others: inputs in place of scatters, for example."""
    if isinstance(step, ExternCall):
        step.args = tuple(_redirected(arg, moved) for arg in step.args)
        step.kwargs = {name: _redirected(arg, moved) for name, arg in step.kwargs.items()}
        step.reads = tuple(_redirected(node, moved) for node in step.reads)


def _redirected(value: object, moved: Mapping[Node, Node]) -> Any:
    """Return an argument with tensors replaced; the last view of a chain is changed in place."""
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
