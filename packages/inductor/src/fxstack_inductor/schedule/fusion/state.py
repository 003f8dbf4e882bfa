"""The state of one run of fusion: units, the reads of each tensor, and the group of each tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ZERO, Expr, Var, of_atom
from fxstack_inductor.ir.nodes import (
    Body,
    Computed,
    Coord,
    ExternCall,
    Node,
    Read,
    Reduction,
    substitution,
    walk,
)
from fxstack_inductor.ir.ordered import Scatter
from fxstack_inductor.lower.program import HostCall, Program
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.schedule.fusion.inlining import Usage
from fxstack_inductor.schedule.fusion.loop_matching import Refusal
from fxstack_inductor.schedule.sizes import SizeProviders

UNKNOWN = Var("computed", VarKind.VALUE)
"""The variable of a coordinate that only the kernel knows."""
COMPUTED = of_atom(UNKNOWN)
"""A coordinate known only in the kernel (an index read from memory); no loop variable equals it."""


@dataclass(frozen=True)
class Placement:
    """Where a group computes a tensor: the coordinates, in loop variables, of its element and of its reduced elements."""

    coords: tuple[Expr, ...]
    reduced: tuple[Expr, ...] = ()
    """The coordinates of the reduced elements; empty for a pointwise tensor."""

    @cached_property
    def variables(self) -> frozenset[Var]:
        """The loop variables in all coordinates."""
        return frozenset(v for e in (*self.coords, *self.reduced) for v in loops_of(e))


@dataclass(frozen=True, eq=False)
class Access:
    """An element of ``tensor`` that a group reads or computes, in the loop variables of the group."""

    tensor: Node
    coords: tuple[Expr, ...]
    """The coordinates; ``COMPUTED`` for those that only the kernel knows."""

    @cached_property
    def is_known(self) -> bool:
        """Whether all coordinates are known before the kernel runs."""
        return all(map(is_known, self.coords))

    @cached_property
    def place(self) -> Expr:
        """The place in memory, in elements."""
        return place_of(self.coords, self.tensor.layout.stride)


@dataclass(eq=False)
class Group:
    """Tensors that share one loop nest over ``space``, and later one kernel."""

    space: list[Var]
    inner: frozenset[Var] | None
    """The variables of the inner loops (reduced or scanned), or None while undecided."""
    placed: dict[Computed, Placement]
    """Each tensor of the group -> its place in the loops."""
    first: int
    """Position in the program of the first tensor; ``last``: of the last tensor."""
    last: int
    calls: int
    """The number of operations per element, compared with ``options.max_kernel_ops``."""
    level: int = 0
    """The level in ``precedence``."""


Unit = Group | ExternCall | HostCall


@dataclass
class FusionState:
    """State of one run of fusion, without the order of units, which ``groups.Fusion`` adds."""

    program: Program
    usage: Usage
    inlined: set[Node]
    """Tensors that are computed at each read, and belong to no group."""
    options: InductorOptions
    sizes: SizeProviders
    """Calls that give kernels their sizes."""
    unit: dict[Node, Unit] = field(default_factory=dict)
    """The group or call that computes each tensor."""
    position: dict[int, int] = field(init=False)
    """Step number of a program step, by identity of the step."""
    direct: dict[Computed, tuple[Read, ...]] = field(default_factory=dict)
    """Reads of each tensor through inlined tensors, computed once."""
    readers: dict[Node, list[Group]] = field(default_factory=dict)
    """The groups that read each tensor. A group may have been merged since: ``current`` returns the merged group."""
    refusals: list[tuple[str, str, Refusal]] = field(default_factory=list)
    """Pairs of tensors whose groups were not merged, with the reason; ``Plan`` shows them."""
    weights: dict[Computed, int] = field(default_factory=dict)
    """Operations per element, by tensor."""
    found: dict[tuple[Computed, Callable[[Body], bool]], bool] = field(default_factory=dict)
    """Whether the computation of a tensor has a part that a test finds, by tensor and test."""
    accesses: dict[tuple[Computed, Placement], tuple[Access, ...]] = field(default_factory=dict)
    """The accesses of a tensor that is computed at a placement, once asked for."""
    counter: int = 0
    """The number of loop variables made so far."""

    def __post_init__(self) -> None:
        self.position = {id(step): k for k, step in enumerate(self.program.steps)}

    def current(self, group: Group) -> Group:
        """Return the group that now contains the tensors of ``group``, which may have been merged since."""
        unit = self.unit[next(iter(group.placed))]
        return unit if isinstance(unit, Group) else group

    def fresh(self, extent: Expr) -> Var:
        """Return a new loop variable with this extent."""
        self.counter += 1
        return Var(f"x{self.counter}", VarKind.LOOP, extent)

    def reads(self, node: Computed) -> tuple[Read, ...]:
        """Return the reads of ``node`` in its coordinates, with inlined tensors replaced by their reads."""
        if node not in self.direct:
            self.direct[node] = tuple(dict.fromkeys(self._reads_through_inlined(node)))
        return self.direct[node]

    def accesses_at(self, node: Computed, placement: Placement) -> tuple[Access, ...]:
        """Return the element that ``node`` computes at ``placement``, and behind it what it reads, as ``reads`` has it."""
        key = node, placement
        if key not in self.accesses:
            index = [*node.index, *(node.reduced if isinstance(node, (Reduction, Scatter)) else ())]
            mapping = substitution(index, [*placement.coords, *placement.reduced])
            self.accesses[key] = (
                Access(node, placement.coords),
                *[
                    Access(
                        r.node,
                        tuple([c.subs(mapping) if isinstance(c, Expr) else COMPUTED for c in r.coords]),
                    )
                    for r in self.reads(node)
                ],
            )
        return self.accesses[key]

    def has(self, node: Computed, test: Callable[[Body], bool]) -> bool:
        """Whether ``test`` finds a part of ``node``, or of a tensor inlined into it."""
        if (node, test) not in self.found:
            inlined = [r.node for r in node.reads if r.node in self.inlined]
            self.found[node, test] = any(map(test, walk(node.body))) or any(
                isinstance(n, Computed) and self.has(n, test) for n in inlined
            )
        return self.found[node, test]

    def _reads_through_inlined(self, node: Computed) -> Iterable[Read]:
        """Yield the reads of ``node``; a read of an inlined tensor becomes the reads of that tensor."""
        for read in node.reads:
            if read.node not in self.inlined or not isinstance(read.node, Computed):
                yield read
                continue
            coords = [c if isinstance(c, Expr) else COMPUTED for c in read.coords]
            mapping = substitution(read.node.index, coords)
            for inner in self.reads(read.node):
                yield Read(inner.node, tuple(moved(c, mapping) for c in inner.coords))


def moved(coord: Coord, mapping: dict[Var, Expr]) -> Coord:
    """Return a coordinate with variables replaced; a computed coordinate stays."""
    return coord.subs(mapping) if isinstance(coord, Expr) else coord


def loops_of(expr: Expr) -> list[Var]:
    """Return the loop variables in ``expr``."""
    return [v for v in expr.variables if v.kind is VarKind.LOOP]


def is_known(coord: Coord) -> bool:
    """Whether the coordinate is known before the kernel runs (not an index read from memory)."""
    return isinstance(coord, Expr) and UNKNOWN not in coord.variables


def place_of(coords: Iterable[Expr], strides: Iterable[Expr]) -> Expr:
    """Return the place in memory of an element, in elements."""
    return sum((coord * stride for coord, stride in zip(coords, strides, strict=True)), ZERO)
