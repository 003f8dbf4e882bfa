"""The state of one run of fusion: units, the reads of each tensor, and the group of each tensor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import Expr, Var, of_atom
from fxstack_inductor.ir.nodes import Computed, Coord, ExternCall, Node, Read, substitution
from fxstack_inductor.lower.program import HostCall, Program
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.schedule.fusion.inlining import Usage
from fxstack_inductor.schedule.fusion.loop_matching import Refusal
from fxstack_inductor.schedule.sizes import SizeProviders

UNKNOWN = Var("computed", VarKind.VALUE)
COMPUTED = of_atom(UNKNOWN)
"""A coordinate known only in the kernel (an index read from memory); it never equals a loop variable."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The place of a tensor in the group's loops: coordinates of its element and of its reduced elements."""

    coords: tuple[Expr, ...]
    reduced: tuple[Expr, ...] = ()

    @property
    def variables(self) -> frozenset[Var]:
        return frozenset(v for e in (*self.coords, *self.reduced) for v in loops_of(e))


@dataclass(eq=False)
class Group:
    """Tensors in one loop nest over ``space``; ``inner``: the inner variables, or None while undecided."""

    space: list[Var]
    inner: frozenset[Var] | None
    placed: dict[Computed, Placed]
    first: int
    last: int
    calls: int
    level: int = 0
    """The level in ``precedence``."""


Unit = Group | ExternCall | HostCall


@dataclass
class FusionState:
    """State of one run of fusion."""

    program: Program
    usage: Usage
    inlined: set[Node]
    options: InductorOptions
    sizes: SizeProviders
    unit: dict[Node, Unit] = field(default_factory=dict)
    position: dict[int, int] = field(init=False)
    """Step number of a program step, by identity of the step."""
    direct: dict[Computed, tuple[Read, ...]] = field(default_factory=dict)
    readers: dict[Node, list[Group]] = field(default_factory=dict)
    refusals: list[tuple[str, str, Refusal]] = field(default_factory=list)
    weights: dict[Computed, int] = field(default_factory=dict)
    counter: int = 0

    def __post_init__(self) -> None:
        self.position = {id(step): k for k, step in enumerate(self.program.steps)}

    def current(self, group: Group) -> Group:
        """Return the group that now contains the tensors of ``group``."""
        unit = self.unit[next(iter(group.placed))]
        return unit if isinstance(unit, Group) else group

    def fresh(self, extent: Expr) -> Var:
        self.counter += 1
        return Var(f"x{self.counter}", VarKind.LOOP, extent)

    def reads(self, node: Computed) -> tuple[Read, ...]:
        """Return the reads of ``node`` in its coordinates, with inlined tensors replaced by their reads."""
        if node not in self.direct:
            self.direct[node] = tuple(dict.fromkeys(self._through(node)))
        return self.direct[node]

    def _through(self, node: Computed) -> Iterable[Read]:
        for read in node.reads:
            if read.node not in self.inlined or not isinstance(read.node, Computed):
                yield read
                continue
            known = [c if isinstance(c, Expr) else COMPUTED for c in read.coords]
            mapping = substitution(read.node.index, known)
            for inner in self.reads(read.node):
                yield Read(inner.node, tuple(moved(c, mapping) for c in inner.coords))


def moved(coord: Coord, mapping: dict[Var, Expr]) -> Coord:
    return coord.subs(mapping) if isinstance(coord, Expr) else coord


def loops_of(expr: Expr) -> list[Var]:
    return [v for v in expr.variables if v.kind is VarKind.LOOP]
