"""Launch small independent kernels of a GPU together: one launch with programs for each kernel.

A small kernel waits until a step needs its result, or until the graph ends. The kernels that wait then run in as few
launches as their dependencies allow. A waiting kernel keeps the tensors that it reads in memory, so only a limited
number of elements may wait, and only while the memory of the graph stays below its peak without waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain

from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import product
from fxstack_inductor.ir.kernel import Kernel, Scan
from fxstack_inductor.ir.nodes import Argument, ExternCall, Node
from fxstack_inductor.schedule.fusion.inlining import base_of, is_range_call
from fxstack_inductor.schedule.fusion.inplace_scatter import rename_buffers
from fxstack_inductor.schedule.lifetimes import lifetimes
from fxstack_inductor.schedule.steps import KernelStep, Step

SMALL = 1 << 16
"""A kernel with at most this many points leaves most of a GPU without work."""
PARTS = 256
"""A kernel that reduces at most this many elements to each result has few programs for its points: it may have more points."""
MOST_OF_PARTS = 1 << 19
"""The most points of a kernel that reduces parts."""
WAITING = 1 << 20
"""The number of elements that may be kept in memory for waiting kernels."""
FEW_BYTES = 1 << 16
"""The bytes that waiting kernels may keep in memory even where the memory of the graph is at its peak."""
KINDS = 8
"""The most different kernels of a launch. Each is compiled as a part of it; equal kernels are one part."""
BUFFERS = 192
"""The most buffers of a launch."""


@dataclass(frozen=True)
class Access:
    """The names of the tensors whose memory a step reads and writes."""

    reads: frozenset[str]
    writes: frozenset[str]

    def before(self, later: Access) -> bool:
        """Whether ``later`` must stay behind this step."""
        return bool(self.writes & (later.reads | later.writes) or self.reads & later.writes)


def run_side_by_side(steps: Sequence[Step], kept: AbstractSet[Node]) -> list[Step]:
    """Return the steps with small kernels moved behind steps that do not need them, and launched together.

    ``kept``: the tensors that the program returns or copies into its inputs.
    """
    done: list[Step] = []
    waiting: list[KernelStep] = []
    memory = lifetimes(steps, kept)
    for position, step in enumerate(steps):
        room = max(memory.alive) - memory.alive[position]
        if memory.held(waiting, position) > max(room, FEW_BYTES):
            done += _launches(waiting)
            waiting = []
        if isinstance(step, KernelStep) and _is_small(step.kernel):
            waiting.append(step)
            if sum(_elements(s.kernel) for s in waiting) > WAITING:
                done += _launches(waiting)
                waiting = []
            continue
        needed = _needed(waiting, step)
        done += _launches(needed)
        waiting = [s for s in waiting if s not in needed]
        done.append(step)
    return [*done, *_launches(waiting)]


def _is_small(kernel: Kernel) -> bool:
    """Whether a kernel may wait: few points, sizes that are known, and no effect but its results."""
    points = product(loop.extent for loop in (*kernel.outer, *kernel.inner)).as_int()
    most = MOST_OF_PARTS if _reduces_parts(kernel) else SMALL
    plain = not (kernel.template or kernel.roles or kernel.scatters or kernel.checked or kernel.sizes)
    scans = any(isinstance(value, Scan) for value in kernel.values)
    return plain and not scans and points is not None and 0 < points <= most


def _reduces_parts(kernel: Kernel) -> bool:
    """Whether a kernel only reduces a few elements to each result, as behind a split reduction."""
    count, facts = product(loop.extent for loop in kernel.inner).as_int(), analyse(kernel)
    return count is not None and 1 < count <= PARTS and not any(map(facts.store_inner, kernel.stores))


def _elements(kernel: Kernel) -> int:
    """Return the number of elements of the tensors that a kernel reads."""
    return sum(ref.numel.as_int() or 0 for ref in kernel.buffers if ref.name in kernel.read)


def access_of(step: Step) -> Access:
    """Return what a step reads and writes; an operator with an effect may write to its arguments."""
    reads = frozenset(base_of(node).name for node in step.reads)
    if isinstance(step, KernelStep):
        return Access(reads, step.kernel.written)
    if not isinstance(step, ExternCall):
        return Access(reads, frozenset())
    outputs = frozenset(node.name for node in step.outputs)
    return Access(reads, outputs | reads if step.effect or step.alias else outputs)


def _needed(waiting: Sequence[KernelStep], step: Step) -> list[KernelStep]:
    """Return the waiting kernels that must run before ``step``, in order."""
    if is_barrier(step):
        return [*waiting]
    needed: list[KernelStep] = []
    behind = [access_of(step)]
    for kernel in reversed(waiting):
        access = access_of(kernel)
        if any(access.before(later) for later in behind):
            needed.insert(0, kernel)
            behind.append(access)
    return needed


def is_barrier(step: Step) -> bool:
    """Whether no launch may move over ``step``, which may change the surroundings of all later launches."""
    return is_range_call(step) or (isinstance(step, ExternCall) and _acts_elsewhere(step))


def _acts_elsewhere(call: ExternCall) -> bool:
    """Whether a call has an effect other than on its arguments. Calls that make arguments of kernels have none."""
    return call.effect and not call.reads and not all(isinstance(o, Argument) for o in call.outputs)


def _launches(steps: Sequence[KernelStep]) -> Iterator[KernelStep]:
    """Yield the launches of ``steps``: kernels that need no result of each other run together."""
    levels: list[list[tuple[KernelStep, Access]]] = []
    for step in steps:
        access = access_of(step)
        above = (k + 1 for k, level in enumerate(levels) if any(a.before(access) for _, a in level))
        at = max(above, default=0)
        if at == len(levels):
            levels.append([])
        levels[at].append((step, access))
    for level in levels:
        yield from map(_together, _divided([step for step, _ in level]))


def _divided(steps: Sequence[KernelStep]) -> Iterator[list[KernelStep]]:
    """Yield the kernels of each launch: kernels of one device, within the limits, equal kernels next to each other."""
    numbers: dict[Kernel, int] = {}
    numbered = [(step, numbers.setdefault(_kind(step.kernel), len(numbers))) for step in steps]
    numbered.sort(key=lambda item: (str(_device(item[0])), *_loops(item[0].kernel), item[1]))
    group: list[KernelStep] = []
    kinds: set[int] = set()
    for step, kind in numbered:
        buffers = sum(len(s.kernel.buffers) for s in (*group, step))
        full = len(kinds | {kind}) > KINDS or buffers > BUFFERS
        if group and (full or _device(group[0]) != _device(step)):
            yield group
            group, kinds = [], set()
        group.append(step)
        kinds.add(kind)
    if group:
        yield group


def _loops(kernel: Kernel) -> tuple[str, str]:
    return str(kernel.outer), str(kernel.inner)


def _kind(kernel: Kernel) -> Kernel:
    """Return what is equal for kernels that compute the same of other tensors."""
    places = {ref.name: f"a{k}" for k, ref in enumerate(kernel.buffers)}
    return replace(rename_buffers(kernel, places), name="", origins=(), comments=())


def _device(step: KernelStep) -> object:
    """Return the device of a kernel."""
    return next(node.device for node in chain(step.stored, step.reads))


def _together(steps: Sequence[KernelStep]) -> KernelStep:
    """Return one launch of ``steps``."""
    if len(steps) == 1:
        return steps[0]
    kernels = tuple(step.kernel for step in steps)
    buffers = {ref.name: ref for kernel in kernels for ref in kernel.buffers}
    kernel = replace(
        kernels[0],
        outer=(),
        inner=(),
        values=(),
        stores=(),
        buffers=tuple(buffers.values()),
        origins=_distinct(kernel.origins for kernel in kernels),
        comments=_distinct(kernel.comments for kernel in kernels),
        parts=kernels,
    )
    stored = tuple(node for step in steps for node in step.stored)
    reads: dict[Node, None] = dict.fromkeys(node for step in steps for node in step.reads)
    return KernelStep(kernel, stored, tuple(reads))


def _distinct(texts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return all texts in order, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(texts)))
