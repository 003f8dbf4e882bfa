"""Let kernels write mutated inputs directly. Otherwise a kernel writes a new tensor, which is copied at the end.

The direct write has two conditions: no later step reads the input's old contents, and the kernel reads an
element of the input only to write the same element. On a GPU, moreover, a single program must read the element: programs
run in any order. On the CPU, an index that may be out of range forbids the
direct write, because eager raises before it writes anything, and the compiled program must do the same (for
scatters see ``inplace_scatter``). On a GPU, such an index ends the process's use of the device, as in eager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.kernel import Kernel, Load, Reduce, Scan
from fxstack_inductor.ir.nodes import Computed, ExternCall, Input, Node
from fxstack_inductor.ir.ordered import Scatter
from fxstack_inductor.lower.program import Mutation, Program
from fxstack_inductor.schedule.fusion.inlining import base_of
from fxstack_inductor.schedule.fusion.inplace_scatter import (
    guard_scatters,
    is_copy_within,
    may_scatter,
    redirect,
    rename_buffers,
)
from fxstack_inductor.schedule.steps import KernelStep, Step

# Limits: a mutated input is computed into a buffer and copied if the kernel also reduces the input, reads it
# at other positions than it writes, uses its old value beside a reduction for anything else, or returns the new
# value, or if an index of a CPU graph may be out of range. A forward keeps its inputs until it ends; a backward
# frees its inputs after their last use.


def share_memory(steps: Sequence[Step]) -> list[Step]:
    """Write the start value of each scatter into the scatter's memory, which its kernel then changes."""
    kernels = [step for step in steps if isinstance(step, KernelStep)]
    scatters = {n.init: n for step in kernels for n in step.stored if isinstance(n, Scatter)}
    return [_on_scatter(step, scatters) for step in steps]


def _on_scatter(step: Step, scatters: Mapping[Node, Scatter]) -> Step:
    """Return ``step`` with the start value of a scatter stored in the memory of the scatter."""
    if not isinstance(step, KernelStep):
        return step
    changed = [node for node in step.stored if isinstance(node, Scatter)]
    names = {node.name: scatters[node].name for node in step.stored if node in scatters}
    stored = tuple(scatters.get(n, n) for n in step.stored if n not in changed)
    reads = [node for node in step.reads if node not in scatters] + changed
    return KernelStep(rename_buffers(step.kernel, names), stored, tuple(reads))


def write_in_place(program: Program, steps: Sequence[Step]) -> tuple[list[Step], tuple[Mutation, ...]]:
    """Return the steps with in-place writes, and the mutations that the host must still copy."""
    chosen = {m.value: m.target for m in _writable_in_place(program, steps)}
    remaining = tuple(m for m in program.mutations if m.value not in chosen)
    names = frozenset(target.name for target in chosen.values())
    changed_steps: list[Step] = []
    for step in steps:
        redirect(step, chosen)
        changed = _write_to_inputs(step, chosen)
        if not isinstance(changed, KernelStep):
            changed_steps.append(changed)
        elif not is_copy_within(changed.kernel, names):
            changed_steps.append(guard_scatters(changed, names))
    return changed_steps, remaining


def _writable_in_place(program: Program, steps: Sequence[Step]) -> Iterable[Mutation]:
    """Yield the mutations whose kernel can write the input itself."""
    returned = {base_of(value) for value in program.outputs if isinstance(value, Node)}
    checked = any(isinstance(step, KernelStep) and step.kernel.checked for step in steps)
    uses = Counter(node for m in program.mutations for node in (m.target, m.value))
    makers = {node: k for k, s in enumerate(steps) if isinstance(s, KernelStep) for node in s.stored}
    readers = _Readers(steps)
    for mutation in program.mutations:
        target, value = mutation.target, mutation.value
        if not isinstance(value, Computed) or value not in makers or value in returned:
            continue
        if uses[target] > 1 or uses[value] > 1 or value.layout != target.layout:
            continue
        if isinstance(value, Scatter):
            allowed = may_scatter(steps, makers[value], target, value)
        else:
            unchecked = not checked or value.device.type == "cuda"
            allowed = unchecked and _needs_no_old_value(steps, readers, makers[value], mutation)
            maker = steps[makers[value]]
            if allowed and program.many_threads and isinstance(maker, KernelStep):
                allowed = read_by_one_program(maker.kernel, target.name)
        if allowed:
            yield mutation


class _Readers:
    """Which steps read a tensor, found in one pass over the steps, since a graph may have thousands of mutations."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.last: dict[Node, int] = {}
        """The position of the last step that reads the tensor."""
        self.by_calls: set[Node] = set()
        """The tensors that steps other than kernels read."""
        self.aliased: set[Node] = set()
        """The tensors whose memory the result of a call may share."""
        for position, step in enumerate(steps):
            read = {base_of(node) for node in step.reads}
            self.last.update(dict.fromkeys(read, position))
            self.by_calls |= set() if isinstance(step, KernelStep) else read
            self.aliased |= read if isinstance(step, ExternCall) and step.alias else set()


def _needs_no_old_value(steps: Sequence[Step], readers: _Readers, position: int, mutation: Mutation) -> bool:
    """Whether no step needs the old value of the mutation's target after step ``position`` has written it."""
    target, value = mutation.target, mutation.value
    if readers.last.get(target, -1) > position or target in readers.aliased or value in readers.by_calls:
        return False
    maker = steps[position]
    return isinstance(maker, KernelStep) and same_elements(maker.kernel, target.name, value.name)


def same_elements(kernel: Kernel, target: str, value: str) -> bool:
    """Whether ``kernel`` reads an element of ``target`` only to write the same element of ``value``."""
    loads = [k for k, v in enumerate(kernel.values) if isinstance(v, Load) and v.buffer == target]
    if not loads:
        return True
    stores = [store for store in kernel.stores if store.buffer == value]
    indices = {v.index for k in loads if isinstance(v := kernel.values[k], Load)}
    if any(s.op or {s.index} != indices for s in stores):
        return False
    # Kernels without reductions read and write each element once. A reduction passes over elements several times, and
    # a pass may compute the values outside of the inner loops again, after the write.
    reduces = [k for k, v in enumerate(kernel.values) if isinstance(v, Reduce)]
    if not reduces:
        return True
    facts = analyse(kernel)
    others = [k for position in reduces for k in kernel.reduction(position).args]
    others += [store.value for store in kernel.stores if store not in stores]
    needed = facts.needed(others, stop=frozenset(reduces))
    return not any(facts.store_inner(s) for s in stores) and set(loads).isdisjoint(needed)


def read_by_one_program(kernel: Kernel, target: str) -> bool:
    """Whether a single program of a GPU reads each element of ``target``: the address changes along all loops of programs."""
    reduces = any(isinstance(v, (Reduce, Scan)) for v in kernel.values)
    loops = {loop.var for loop in (kernel.outer if reduces else (*kernel.outer, *kernel.inner))}
    indices = (v.index for v in kernel.values if isinstance(v, Load) and v.buffer == target)
    return all(loops <= index.variables for index in indices)


def _write_to_inputs(step: Step, chosen: Mapping[Node, Input]) -> Step:
    """Return ``step`` with the tensors of ``chosen`` replaced by the inputs that hold them."""
    if not isinstance(step, KernelStep):
        return step
    written = [node for node in step.stored if node in chosen]
    names = {node.name: chosen[node].name for node in (*step.stored, *step.reads) if node in chosen}
    if not names:
        return step
    stored = tuple(node for node in step.stored if node not in chosen)
    reads = [chosen.get(node, node) for node in (*step.reads, *written)]
    return KernelStep(rename_buffers(step.kernel, names), stored, tuple(dict.fromkeys(reads)))
