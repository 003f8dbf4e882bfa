"""Decide which computed tensors are inlined into their readers and which are units of fusion.

An inlined tensor is recomputed at each read and never stored. A tensor that is not inlined may also avoid
memory: if all its readers are in its own kernel, the tensor stays in registers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeGuard

from fxstack_inductor.ir.expr import ZERO, Expr, Mod, Var
from fxstack_inductor.ir.nodes import (
    Body,
    Call,
    Computed,
    ExternCall,
    Index,
    Masked,
    Node,
    Pointwise,
    Read,
    Reduction,
    View,
    walk,
)
from fxstack_inductor.ir.ordered import Scan, Scatter
from fxstack_inductor.ir.scalar_ops import EXPENSIVE, EXPENSIVE_OPERATIONS
from fxstack_inductor.lower.program import HostCall, Program
from fxstack_inductor.schedule.fusion.checked import has_checks, read_in_part
from fxstack_interchange.torch_facts.effects import RANGES

# Limits: a chain of more than 32 tensors that only move elements, or whose coordinates have more than 64
# quotients and remainders, becomes several kernels.

WINDOW = 4
"""If one element of a reader reads a tensor at this many places or more, these reads form a window."""


MAX_RECOMPUTED = 8
"""Largest number of cheap operations on coordinates alone (e.g. a mask) that are recomputed rather than read."""


MAX_DEPTH = 32
"""Largest depth of nested inlined tensors, because Python's stack is finite.

Limits on operations do not bound the depth: conversions and look-ups count none.
"""


SMALL = 16
"""Storing the sources of a tensor (e.g. the maximum of each row) is cheap if they are this many times smaller."""


ROW = 4096
"""The most bytes of a row in which a read at a place from memory finds its element in the first-level cache."""


SHORT = 1 << 22
"""Largest number of operations, in additions, that a GPU computes in less time than it takes to launch a kernel."""


MAX_BENDS = 64
"""Largest number of quotients, remainders and extremes in the coordinates of inlined tensors.

Nested reshapes repeat these atoms in each coordinate, so their number multiplies from tensor to tensor.
"""


@dataclass
class Usage:
    """Who reads each tensor. ``live``: computed nodes that an output, a call or another live node needs."""

    live: list[Computed]
    required: set[Node] = field(default_factory=set)
    """Computed nodes that must be in memory: read by calls, returned, or copied into inputs."""
    readers: dict[Node, list[Computed]] = field(default_factory=lambda: defaultdict(list))
    """The live nodes that read each node, from the last to the first in the graph."""
    sections: dict[int, int] = field(default_factory=dict)
    """Number of profiler range calls before a step, by identity of the step; empty without ranges."""

    many_threads: bool = False
    """Whether the kernels are for a GPU, as in ``Program``."""

    def section(self, step: Node | ExternCall | HostCall) -> int:
        """Return the number of profiler range calls before ``step``: steps of different sections must not fuse."""
        return self.sections.get(id(step), 0)


def base_of(node: Node) -> Node:
    """Return the tensor under the views of ``node``; ``node`` itself if it is no view."""
    while isinstance(node, View):
        node = node.base
    return node


def find_usage(program: Program) -> Usage:
    """Find the live tensors of ``program`` from its outputs, mutations, calls and index checks."""
    result = Usage([], sections=_sections(program), many_threads=program.many_threads)
    roots = [v for v in program.outputs if isinstance(v, Node)]
    roots += [m.value for m in program.mutations]
    for step in program.steps:
        if isinstance(step, (ExternCall, HostCall)):
            roots += step.reads
    result.required = {base for root in roots if isinstance(base := base_of(root), Computed)}
    needed = set(result.required)
    for step in reversed(program.steps):
        if isinstance(step, Computed) and step not in needed and has_checks(step):
            result.required.add(step)
            needed.add(step)
        if isinstance(step, Computed) and step in needed:
            result.live.append(step)
            if isinstance(step, Scatter):
                result.required.add(step.init)
            for node in dict.fromkeys(read.node for read in step.reads):
                needed.add(node)
                result.readers[node].append(step)
    result.live.reverse()
    return result


def is_range_call(step: object) -> TypeGuard[HostCall]:
    """Whether the step begins or ends a profiler range."""
    return isinstance(step, HostCall) and step.target in RANGES


def _sections(program: Program) -> dict[int, int]:
    """Return the section of each step, by the step's identity; empty without profiler ranges."""
    numbers = list(accumulate(map(is_range_call, program.steps)))
    return {id(s): n for s, n in zip(program.steps, numbers, strict=True)} if any(numbers) else {}


@dataclass(frozen=True, slots=True)
class _Cost:
    """The work of one element of a tensor, including the tensors inlined into it."""

    operations: Mapping[Node, int]
    """The number of operations of each tensor of which the same element is computed: a kernel computes it once."""
    expensive: int
    """The number of operations that are slow to repeat (e.g. exponentials)."""
    reads: frozenset[Node]
    """Tensors in memory that the element is computed from."""
    indirect: bool
    """Whether a coordinate is read from memory."""
    depth: int
    """Depth of nested inlined tensors below this tensor."""
    bends: int
    """Number of quotients, remainders and extremes in coordinates, including those of inlined tensors."""
    conditional: bool
    """Whether an element is read under a condition."""
    strided: bool
    """Whether neighbouring elements are read some elements apart."""

    @property
    def calls(self) -> int:
        """The number of operations."""
        return sum(self.operations.values())


def choose_inlined(uses: Usage) -> set[Node]:
    """Return the pointwise nodes that their readers compute again; the pass ``inline_tensors`` calls this."""
    inlined: set[Node] = set()
    in_part = read_in_part(uses.live, uses.readers, uses.required)
    costs: dict[Node, _Cost] = {}
    wider: set[Computed] = set()
    if uses.many_threads:  # a processor core takes longer for conversions than for the bytes that they save
        wider = {n for n in uses.live if n not in uses.required and n not in in_part and _widens(n)}
    for node in uses.live:
        cost = costs[node] = _cost(node, inlined, costs)
        if not isinstance(node, Pointwise) or node in uses.required or node in in_part:
            continue
        readers = list(_readers(node, uses.readers, wider))
        if cost.reads and any(uses.section(node) != uses.section(reader) for _, reader in readers):
            continue
        if uses.many_threads and _narrows_scan(node, uses):
            continue
        # A loop with conditions is no vector loop; a kernel without reductions is split where conditions change.
        walked = [reader for _, reader in readers if _walks(reader)] if cost.conditional else []
        if not uses.many_threads and any(not _repeats(reader, cost) for reader in walked):
            continue
        again = uses.many_threads and _is_short(cost, readers)
        if node in wider or _worth_inlining(
            node, cost, readers, uses.required, again=again, gpu=uses.many_threads
        ):
            inlined.add(node)
    return inlined


def reads_in_parts(body: Body) -> bool:
    """Whether an element is read under a condition, or at a place that jumps where a remainder starts again."""
    if not isinstance(body, Read):
        return isinstance(body, Masked)
    atoms = (atom for coord in body.coords if isinstance(coord, Expr) for atom in coord.atoms())
    # A remainder of a loop alone becomes a loop of its own.
    return any(isinstance(atom, Mod) and atom.num.as_var() is None for atom in atoms)


def _walks(reader: Computed) -> bool:
    """Whether a kernel of ``reader`` has inner loops."""
    return isinstance(reader, (Reduction, Scan))


def _repeats(reader: Computed, cost: _Cost) -> bool:
    """Whether ``reader`` has as many elements as what it is computed from: it is reduced over expanded dimensions."""
    sizes = [tensor.layout.numel.as_int() for tensor in (reader, *cost.reads)]
    if isinstance(reader, Scan) or None in sizes or not cost.reads:
        return False
    return sum(map(_memory, cost.reads)) <= _bytes(reader)


def _widens(node: Computed) -> bool:
    """Whether ``node`` is another computed tensor in a dtype of more bytes: readers then read that tensor."""
    body = node.body
    while isinstance(body, Call) and body.op == "cast":
        (body,) = body.args
    if not isinstance(node, Pointwise) or not isinstance(body, Read) or body.coords != node.index:
        return False
    source = body.node
    return isinstance(source, Computed) and source.dtype.itemsize < node.dtype.itemsize


def _narrows_scan(node: Pointwise, uses: Usage) -> bool:
    """Whether ``node`` is all that is read of a scan, in a dtype of fewer bytes: the scan's kernel then stores it."""
    sources = {read.node for read in node.reads}
    return all(
        isinstance(source, Scan)
        and source not in uses.required
        and uses.readers[source] == [node]
        and node.layout.numel == source.layout.numel
        and node.dtype.itemsize < source.dtype.itemsize
        for source in sources
    ) and bool(sources)


def _readers(
    node: Node, readers: Mapping[Node, list[Computed]], wider: set[Computed]
) -> Iterator[tuple[Node, Computed]]:
    """Yield (tensor, reader) for each reader of ``node``: the tensor is ``node``, or ``node`` in a dtype of more bytes."""
    for reader in readers.get(node, ()):
        if reader in wider:
            yield from _readers(reader, readers, wider)
        else:
            yield node, reader


def _cost(node: Computed, inlined: set[Node], costs: dict[Node, _Cost]) -> _Cost:
    """Return the cost of ``node`` if the tensors ``inlined`` are computed at each read."""
    calls, expensive, indirect, depth, bends, conditional, strided = 0, 0, False, 0, 0, False, False
    reads: set[Node] = set()
    operations: dict[Node, int] = {}
    for body in walk(node.body):
        conditional = conditional or reads_in_parts(body)
        match body:
            case Call(op, _, _):
                calls += op != "cast"
                expensive += op in EXPENSIVE
            case Index() | Masked():
                calls += 1
            case Read(source, coords):
                plain = [c for c in coords if isinstance(c, Expr)]
                indirect = indirect or len(plain) < len(coords)
                bends_here = sum(not isinstance(atom, Var) for c in plain for atom in c.atoms())
                bends += bends_here
                if source in inlined:
                    inner = costs[source]
                    depth = max(depth, inner.depth + 1)
                    bends += inner.bends * (1 + bends_here)
                    if coords == node.index:
                        operations |= inner.operations
                    else:
                        calls += inner.calls
                    expensive += inner.expensive
                    indirect = indirect or inner.indirect
                    conditional = conditional or inner.conditional
                    strided = strided or inner.strided
                    reads |= inner.reads
                else:
                    strided = strided or _is_strided(node, source, plain)
                    reads.add(source)
            case _:
                pass
    operations[node] = calls
    return _Cost(operations, expensive, frozenset(reads), indirect, depth, bends, conditional, strided)


def _is_strided(node: Computed, source: Node, coords: Sequence[Expr]) -> bool:
    """Whether neighbours in the memory of ``node`` read elements of ``source`` that are some elements apart."""
    if not node.shape or len(coords) != len(source.layout.stride):
        return False
    place = sum((c * s for c, s in zip(coords, source.layout.stride, strict=True)), ZERO)
    var = node.index[node.layout.order[-1]].as_var()
    step = None if var is None else place.coefficient(var)
    return step is not None and step.as_int() not in {0, 1, -1}


def _worth_inlining(
    node: Pointwise,
    cost: _Cost,
    readers: list[tuple[Node, Computed]],
    required: set[Node],
    *,
    again: bool,
    gpu: bool,
) -> bool:
    """Whether recomputing ``node`` at each read is cheaper than one store and the loads; ``readers``: ``_readers``.

    ``again``: the readers take no time worth mentioning to compute elements several times. On a CPU, vector loops read what lies
    apart one element at a time, and so do not repeat that.
    """
    # A mask or a range of numbers: computing it is faster than any load.
    if not cost.reads and not cost.expensive and cost.calls <= MAX_RECOMPUTED:
        return True
    if cost.depth > MAX_DEPTH or cost.bends > MAX_BENDS:
        return False
    if cost.calls > 64 or len(cost.reads) > 12:
        return False
    repeats = not again and any(_amplifies(read, reader) for read, reader in readers)
    if repeats and (cost.expensive or cost.calls > 2 or cost.indirect or (cost.strided and not gpu)):
        return False
    # A single reader computes each element once in any case, so a store and a load are saved.
    if len(readers) == 1:
        return True
    if cost.expensive or cost.calls > 8 or (cost.indirect and not gpu and _is_long(node)):
        return False
    instead = sum(_bytes(n) for n in cost.reads if isinstance(n, Computed) and n not in required)
    if instead * SMALL > _bytes(node):
        # Recomputation elsewhere would store the tensors read here instead of the tensor itself.
        return False
    # A core reads memory before it writes it. A reduction may divide its columns by operands that it repeats.
    pair = len(readers) == 2 and all(isinstance(reader, Pointwise) for _, reader in readers)
    return sum(map(_memory, cost.reads)) <= (3 if pair and not gpu else 2) * _bytes(node)


def _is_long(node: Node) -> bool:
    """Whether reads at places within a row of the tensor come from a slower cache than the first."""
    row = node.shape[-1].as_int() if node.shape else 1
    return row is not None and row * node.dtype.itemsize > ROW


def _bytes(node: Node) -> int:
    """Return the bytes of a tensor; a guess if its size is known only at run time."""
    return _numel(node) * int(node.dtype.itemsize)


def _memory(node: Node) -> int:
    """Return the bytes of memory of a tensor, in which an expanded dimension takes no place."""
    stride = node.layout.stride
    repeated = [size.as_int() for size, step in zip(node.shape, stride, strict=True) if step == 0]
    return _bytes(node) // math.prod(size or 1 for size in repeated)


def _numel(node: Node) -> int:
    """Return the number of elements, or a large number if the number is known only at run time."""
    numel = node.layout.numel.as_int()
    return 1 << 20 if numel is None else numel


def _is_short(cost: _Cost, readers: list[tuple[Node, Computed]]) -> bool:
    """Whether all operations at the reads of ``readers`` take less time than the launch of a kernel."""
    each = 1 + cost.calls + EXPENSIVE_OPERATIONS * cost.expensive
    return sum(each * sum(_read_elements(*pair)) for pair in readers) <= SHORT


def _amplifies(node: Node, reader: Computed) -> bool:
    """Whether inlining would compute each element several times for one reader."""
    counts = _read_elements(node, reader)
    total = sum(counts) if len(counts) >= WINDOW else max(counts)
    return total >= 2 * max(_numel(node), 1)


def _read_elements(node: Node, reader: Computed) -> list[int]:
    """Return how many elements of ``node`` each of the places reads where ``reader`` reads ``node``."""
    points = 1 if isinstance(reader, Scatter) else _numel(reader)
    loops = list(reader.index)
    if isinstance(reader, (Reduction, Scatter)):
        loops = [*reader.reduced, *([] if isinstance(reader, Scatter) else loops)]
        for size in reader.ranges:
            points *= size.as_int() or 64
    places = {read for read in reader.reads if read.node is node}
    return [min(points, _numel(node)) if _reads_once(read, loops) else points for read in places]


def _reads_once(read: Read, loops: list[Expr]) -> bool:
    """Whether different points of ``loops`` surely read different elements, e.g. in one part of a concatenation."""
    covered = set()
    for coord in read.coords:
        if isinstance(coord, Expr) and len(loop := [v for v in coord.variables if v.extent]) == 1:
            covered |= {loop[0]} if coord.coefficient(loop[0]) is not None else set()
    return all(v is None or v in covered for v in (index.as_var() for index in loops))
