"""Fusion: partition the computed tensors into groups that share one loop nest.

Tensors are visited in the graph's order. Each tensor starts as a group of its own. The group is merged with
groups that it reads from, then with groups that read the same memory. A merge must satisfy every rule in
``RULES``; a rule that forbids a merge returns a named refusal, which is kept for the report.
"""

# ruff: noqa: ARG001 - every fusion rule has the same signature
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product as combinations

from fxstack_inductor.ir.expr import ZERO, Expr, Var, of_atom, product
from fxstack_inductor.ir.nodes import Call, Computed, ExternCall, Masked, Node, Pointwise, Reduction, walk
from fxstack_inductor.ir.ordered import Scan, Scatter
from fxstack_inductor.lower.program import Program
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.schedule.fusion.cpu_rules import CPU_RULES
from fxstack_inductor.schedule.fusion.inlining import WINDOW, Usage
from fxstack_inductor.schedule.fusion.loop_matching import Refusal, Unifier, digits
from fxstack_inductor.schedule.fusion.precedence import Precedence
from fxstack_inductor.schedule.fusion.state import FusionState, Group, Placement, loops_of
from fxstack_inductor.schedule.sizes import size_providers

HEAVY = 32
"""Operations per element above which reading a stored tensor is cheaper than a second computation."""
FEW_COLUMNS = 1024
"""Sums of fewer columns than this run in fewer programs than a GPU has processors."""
SIBLINGS = 6
"""Of the groups that read the same memory, this many are tried for a merge, the latest first."""


@dataclass
class Fusion(FusionState):
    """State of one run of fusion: ``FusionState``, with the order of its units. ``fuse`` makes it."""

    precedence: Precedence = field(init=False)
    """The order that units must keep."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.precedence = Precedence(self)


def fuse(
    program: Program, usage: Usage, inlined: set[Node], options: InductorOptions
) -> tuple[list[Group], Fusion]:
    """Return groups covering every live tensor that is not inlined, and the state with all refusals."""
    fusion = Fusion(program, usage, inlined, options, size_providers(program, inlined))
    for step in program.steps:
        if isinstance(step, ExternCall):
            for output in step.outputs:
                fusion.unit[output] = step
    groups: dict[int, Group] = {}
    for node in usage.live:
        if node in inlined:
            continue
        position = fusion.position[id(node)]
        fusion.precedence.reach(position)
        group = _singleton(fusion, node, position)
        group.level = fusion.precedence.above_producers(group)
        fusion.unit[node] = group
        if options.fuse:
            group = _absorb(fusion, node, group)
        fusion.precedence.place(node, group)
    for unit in fusion.unit.values():
        if isinstance(unit, Group):
            groups[id(unit)] = unit
    return list(groups.values()), fusion


def _singleton(fusion: Fusion, node: Computed, position: int) -> Group:
    """Return a group of ``node`` alone, with one new loop variable for each dimension of more than one element."""

    def coords_of(sizes: Sequence[Expr]) -> tuple[tuple[Expr, ...], list[Var]]:
        """Return coordinates for dimensions of ``sizes``, and their new loop variables."""
        variables = [None if size == 1 else fusion.fresh(size) for size in sizes]
        coords = tuple(ZERO if v is None else of_atom(v) for v in variables)
        return coords, [v for v in variables if v is not None]

    calls = sum(isinstance(b, Call) for b in walk(node.body))
    if isinstance(node, Scatter):
        reduced, space = coords_of(node.ranges)
        placements: dict[Computed, Placement] = {node: Placement((), reduced)}
        return Group(space, _in_order(node, reduced), placements, position, position, calls)
    coords, outer = coords_of(node.shape)
    if isinstance(node, Scan):
        along = frozenset(loops_of(coords[node.axis])) or None
        return Group(outer, along, {node: Placement(coords)}, position, position, calls)
    if not isinstance(node, Reduction):
        return Group(outer, None, {node: Placement(coords)}, position, position, calls)
    reduced, inner = coords_of(node.ranges)
    placements = {node: Placement(coords, reduced)}
    return Group(outer + inner, frozenset(inner), placements, position, position, calls)


def _in_order(node: Scatter, reduced: Sequence[Expr]) -> frozenset[Var]:
    """Return the loops that must run in order: all loops except the loops whose steps write distinct elements."""
    loop_coords = dict(zip(node.reduced, reduced, strict=True))
    apart = {
        v
        for coord in node.target
        if isinstance(coord, Expr) and coord in loop_coords
        for v in loops_of(loop_coords[coord])
    }
    return frozenset(v for coord in reduced for v in loops_of(coord)) - apart


def _absorb(fusion: Fusion, node: Computed, group: Group) -> Group:
    """Merge ``node``'s group with the groups it reads from, then with siblings; return the resulting group."""
    producers = [fusion.unit.get(read.node) for read in fusion.reads(node)]
    # The nearest producer comes first, because the fewest units lie between the producer and ``node``.
    candidates = {id(u): u for u in producers if isinstance(u, Group)}
    for candidate in sorted(candidates.values(), key=lambda g: -g.last):
        group = _try_merge(fusion, candidate, group) or group
    seen: dict[int, Group] = {}
    for read in fusion.reads(node):
        if read.node in fusion.unit and isinstance(fusion.unit[read.node], Group):
            continue
        # A popular tensor may have thousands of readers; the latest readers are least likely to
        # have a unit between.
        for reader in fusion.readers.get(read.node, [])[-SIBLINGS:]:
            current = fusion.current(reader)
            if current is not group:
                seen[id(current)] = current
    for sibling in sorted(seen.values(), key=lambda g: -g.last)[:SIBLINGS]:
        if sibling is not group and sibling.placed:
            group = _try_merge(fusion, sibling, group) or group
    return group


def _try_merge(fusion: Fusion, left: Group, right: Group) -> Group | None:
    """Merge two groups and record the result in ``fusion``; after a refusal, record the refusal and return None."""
    if left is right:
        return None
    merged = merge(fusion, left, right)
    if isinstance(merged, Refusal):
        names = next(iter(left.placed)).name, next(iter(right.placed)).name
        fusion.refusals.append((*names, merged))
        return None
    for node in merged.placed:
        fusion.unit[node] = merged
    fusion.precedence.raise_behind(merged)
    return merged


def merge(fusion: Fusion, left: Group, right: Group) -> Group | Refusal:
    """Return one group of both, or the reason for the refusal."""
    if any(isinstance(n, Scatter) for group in (left, right) for n in group.placed):
        return Refusal("a scatter has loops of its own")
    if left.calls + right.calls > fusion.options.max_kernel_ops:
        return Refusal("too many operations")
    pairs = list(_pairs(fusion, left, right))
    if not pairs and not _reads_scalar(fusion, left, right):
        return Refusal("nothing shared")
    unifier = Unifier(list(left.space), list(right.space), fusion.fresh)
    refusal = unifier.match(pairs) or unifier.match_rest()
    if refusal is not None:
        # Symbolic sizes can keep coordinates from being numbers with digits, although the loops simply correspond.
        unifier = Unifier(list(left.space), list(right.space), fusion.fresh)
        if not unifier.match_in_order(pairs):
            return refusal
    merged = _combine(unifier, left, right)
    # The rules look at the merged group, because a rule on its loops needs the matched variables.
    for rule in RULES:
        refusal = rule(fusion, merged, left, right)
        if refusal is not None:
            return refusal
    return merged


def _pairs(fusion: Fusion, left: Group, right: Group) -> Iterable[tuple[Expr, Expr]]:
    """Return pairs of coordinates that must be equal.

    The pairs come from each tensor that one group computes and the other reads. If there is no such tensor,
    they come from memory that both groups read.
    """
    edges = list(_edges(fusion, left, right))
    edges += [(b, a) for a, b in _edges(fusion, right, left)]
    return edges or _shared(fusion, left, right)


def _reads_scalar(fusion: Fusion, left: Group, right: Group) -> bool:
    """Whether ``right`` computes only scalars, from a scalar of ``left``: such a read has no coordinates."""
    return not right.space and _reads_any(fusion, right, left)


def _edges(fusion: Fusion, producer: Group, consumer: Group) -> Iterable[tuple[Expr, Expr]]:
    """Yield pairs of equal coordinates: where ``producer`` computes an element, and where ``consumer`` reads
    the element.
    """
    for node, placement in consumer.placed.items():
        for read in fusion.accesses_at(node, placement)[1:]:
            produced = producer.placed.get(read.tensor)  # type: ignore[call-overload]
            if produced is not None:
                yield from zip(produced.coords, read.coords, strict=True)


def _shared(fusion: Fusion, left: Group, right: Group) -> Iterable[tuple[Expr, Expr]]:
    """Return pairs of equal coordinates: where each group reads the first tensor of ``right`` that both read.

    A group may read a tensor at a few places. Places of the same form come first. The places of a window have conditions
    that other results are better without.
    """
    there = _places(fusion, left)
    for node, here in _places(fusion, right).items():
        if node not in there:
            continue
        pairs = list(combinations(there[node], here))
        if max(len(there[node]), len(here)) >= WINDOW:
            pairs = pairs[:1]
        others, coords = next((pair for pair in pairs if _form(pair[0]) == _form(pair[1])), pairs[0])
        return list(zip(others, coords, strict=True))
    return []


def _places(fusion: Fusion, group: Group) -> dict[Node, list[tuple[Expr, ...]]]:
    """Return the coordinates at which a group reads each tensor."""
    found: dict[Node, list[tuple[Expr, ...]]] = {}
    for node, placement in group.placed.items():
        for read in fusion.accesses_at(node, placement)[1:]:
            if read.is_known:
                places = found.setdefault(read.tensor, [])
                places += [] if read.coords in places else [read.coords]
    return found


def _form(coords: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return coordinates with loops that are named by their order in the coordinates."""
    loops = dict.fromkeys(
        atom for coord in coords for atom in coord.atoms() if isinstance(atom, Var) and atom.extent
    )
    names = {var: of_atom(Var(f"loop{k}", var.kind, var.extent)) for k, var in enumerate(loops)}
    return tuple(coord.subs(names) for coord in coords)


def _moved(placement: Placement, unifier: Unifier) -> Placement:
    """Return ``placement`` in the loops that ``unifier`` has matched; the same record if it is in these already."""
    if unifier.substitution.keys().isdisjoint(placement.variables):
        return placement
    return Placement(
        tuple(map(unifier.apply, placement.coords)), tuple(map(unifier.apply, placement.reduced))
    )


def _combine(unifier: Unifier, left: Group, right: Group) -> Group:
    """Return the tensors of both groups, over the loops that ``unifier`` has matched."""
    space = [*unifier.left, *unifier.unmatched_right()]
    placements = {
        node: _moved(placement, unifier)
        for group in (left, right)
        for node, placement in group.placed.items()
    }
    return Group(
        space,
        None,
        placements,
        min(left.first, right.first),
        max(left.last, right.last),
        left.calls + right.calls,
        max(left.level, right.level),
    )


# --- rules --------------------------------------------------------------------------------------------


def _choose_inner(fusion: Fusion, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Set the inner loops of ``merged``; refuse tensors that are computed at a third level of the loops."""
    everything = frozenset(merged.space)
    inner: frozenset[Var] | None = None
    for node, placement in merged.placed.items():
        if isinstance(node, Reduction):
            loops = frozenset(v for e in placement.reduced for v in loops_of(e))
            outer = frozenset(v for e in placement.coords for v in loops_of(e))
            if loops | outer != everything:
                return Refusal("reduction over part of the loops", node.name)
            if inner is not None and inner != loops:
                return Refusal("reductions over different loops", node.name)
            inner = loops
        elif isinstance(node, Scan) and placement.coords[node.axis].variables:
            loops = frozenset(loops_of(placement.coords[node.axis]))
            if placement.variables != everything or digits(placement.coords[node.axis]) is None:
                return Refusal("scan over part of the loops", node.name)
            if inner is not None and inner != loops:
                return Refusal("scans and reductions over different loops", node.name)
            inner = loops
    sets = {placement.variables for node, placement in merged.placed.items()} - {everything}
    sets -= {everything - inner} if inner is not None else set()
    if inner is not None:
        if sets:
            return Refusal("computed at a third level of the loops")
    elif len(sets) > 1:
        return Refusal("computed at a third level of the loops")
    elif sets:
        outer = next(iter(sets))
        if not _is_prefix(merged, outer):
            return Refusal("broadcast along an outer dimension")
        inner = everything - outer
    merged.inner = inner
    return None


def _is_prefix(group: Group, outer: frozenset[Var]) -> bool:
    """Whether ``outer`` are the leading dimensions, in memory, of every tensor that has all these dimensions."""
    for node, placement in group.placed.items():
        coords = (placement.coords[k] for k in node.layout.order)
        order = list(dict.fromkeys(v for e in coords for v in _ordered_loops(e)))
        if len(order) > len(outer) and frozenset(order[: len(outer)]) != outer:
            return False
    return True


def _ordered_loops(expr: Expr) -> list[Var]:
    """Return the loop variables of a coordinate, highest digit first."""
    lowest_first = digits(expr)
    return lowest_first[::-1] if lowest_first is not None else loops_of(expr)


def _in_range(fusion: Fusion, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse tensors on both sides of a call that begins or ends a profiler range."""
    if len(set(map(fusion.usage.section, merged.placed))) > 1:
        return Refusal("a profiler range begins or ends in between")
    return None


def _has_few_buffers(fusion: Fusion, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse a kernel with more buffers than ``options.max_kernel_buffers``."""
    touched: set[Node] = set(merged.placed)
    for node in merged.placed:
        touched.update(read.node for read in fusion.reads(node))
    if len(touched) > fusion.options.max_kernel_buffers:
        return Refusal("too many buffers", str(len(touched)))
    return None


def _loads_heavy(fusion: Fusion, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse to recompute a heavy tensor: a second pass, after a reduction, must load it."""
    heavy = {n for n in merged.placed if not isinstance(n, Reduction) and _weight(fusion, n) > HEAVY}
    if not heavy:
        return None
    late: set[Computed] = set()
    for node in sorted(merged.placed, key=lambda n: fusion.position[id(n)]):
        read: set[Node] = {r.node for r in fusion.reads(node)}
        if any(isinstance(r, Reduction) and r in merged.placed for r in read) or read & late:
            late.add(node)
    for node in heavy:
        if any(merged.placed[n].variables == frozenset(merged.space) for n in late - {node}):
            return Refusal("heavy, and needed in several passes", node.name)
    return None


def _weight(fusion: Fusion, node: Computed) -> int:
    """Return the number of operations per element, including inlined tensors."""
    weight = fusion.weights.get(node)
    if weight is None:
        weight = sum(isinstance(b, (Call, Masked)) for b in walk(node.body))
        inlined = [r.node for r in node.reads if r.node in fusion.inlined]
        weight += sum(_weight(fusion, n) for n in inlined if isinstance(n, Computed))
        fusion.weights[node] = weight
    return weight


def _acyclic(fusion: Fusion, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse a merge of two groups if a unit must run after one of them and before the other."""
    between = fusion.precedence.find_between(merged, left, right)
    if between is None:
        return None
    name = next(iter(between.placed)).name if isinstance(between, Group) else between.name
    return Refusal("something in between", name)


def _template(fusion: Fusion, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse all readers of a template's reduction except pointwise operations on its elements."""
    reductions = [n for n in merged.placed if isinstance(n, Reduction) and n.template]
    if not reductions:
        return None
    loops = frozenset(v for e in merged.placed[reductions[0]].coords for v in loops_of(e))
    others = [n for n in merged.placed if n is not reductions[0]]
    if any(not isinstance(n, Pointwise) or merged.placed[n].variables != loops for n in others):
        return Refusal("a template takes only pointwise readers of its elements", reductions[0].name)
    return None


def _keeps_programs(fusion: Fusion, merged: Group, left: Group, right: Group) -> Refusal | None:
    """Refuse, on a GPU, elementwise results beside sums of columns that run in few programs.

    Such sums may wait and run side by side, which they could not if something else needed the kernel's results. A sum
    takes the elementwise operands that nothing else needs.
    """
    inner = merged.inner
    reductions = [node for node in merged.placed if isinstance(node, Reduction)]
    if not fusion.program.many_threads or inner is None or not reductions:
        return None
    points = product(v.extent or 1 for v in merged.space if v not in inner).as_int()
    if points is None or points >= FEW_COLUMNS:
        return None
    for group, other in ((left, right), (right, left)):
        beside = all(isinstance(n, Pointwise) and n.shape for n in group.placed)
        if not beside or not any(isinstance(n, Reduction) for n in other.placed):
            continue
        columns = all(inner.isdisjoint(merged.placed[n].coords[-1].variables) for n in group.placed)
        taken = _reads_any(fusion, other, group) and not _read_elsewhere(fusion, group, other)
        if columns and not taken and not _reads_any(fusion, group, other):
            return Refusal("elementwise beside sums of few columns", reductions[0].name)
    return None


def _read_elsewhere(fusion: Fusion, group: Group, other: Group) -> bool:
    """Whether an output, a call, or a tensor outside of both groups reads a tensor of ``group``."""
    inside = {*group.placed, *other.placed, *fusion.inlined}
    return any(
        node in fusion.usage.required or not inside.issuperset(_readers(fusion, node))
        for node in group.placed
    )


def _readers(fusion: Fusion, node: Node) -> Iterator[Computed]:
    """Yield the tensors that read ``node``, directly or through inlined tensors."""
    for reader in fusion.usage.readers.get(node, ()):
        yield reader
        if reader in fusion.inlined:
            yield from _readers(fusion, reader)


def _reads_any(fusion: Fusion, group: Group, other: Group) -> bool:
    """Whether a tensor of ``group`` reads one of ``other``."""
    return any(read.node in other.placed for node in group.placed for read in fusion.reads(node))


RULES = (
    *(_in_range, _choose_inner, _template, _has_few_buffers, _loads_heavy),
    *(_keeps_programs, *CPU_RULES, _acyclic),
)
"""The requirements of a merge, in order; a rule returns None or a refusal."""
