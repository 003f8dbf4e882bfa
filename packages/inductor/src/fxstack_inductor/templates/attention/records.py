"""The roles of the loads, stores and values of an attention kernel.

Such a kernel has the loops ``b`` (batch), ``h`` (query's head), ``m`` (query), ``n`` (key), ``d`` and ``e``
(elements of keys and of values), and other loops that occur only in addresses. Its ``values`` hold the loads
of whole tensors, which are read tile by tile, and the computations on single scores. ``Attention`` maps each
role to the position of a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fxstack_inductor.ir.expr import Expr, Var
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import Node
from fxstack_inductor.lower.program import Program
from fxstack_inductor.schedule.steps import TemplateCall
from fxstack_interchange.operators.attention import Attention as AttentionOperator

ATTENTION = "attention"
"""``Kernel.template`` of attention."""

SCORE, GRAD = "score", "grad"
"""Pseudo-buffers of the loads of single scores and of their gradients, which are in registers."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Loop variables (see the module). ``k``: the key's head. ``s``: the part of the keys.

    ``q``, ``j``: row and entry of a block table.
    """

    b: Var
    h: Var
    k: Var
    m: Var
    n: Var
    d: Var
    e: Var
    s: Var
    q: Var
    j: Var


@dataclass(frozen=True, slots=True)
class Tables:
    """Positions of a block mask's loads: (block count, block numbers); a block is ``rows`` by ``columns``."""

    partial: tuple[int, int]
    """The table of blocks in which the mask excludes some scores."""
    whole: tuple[int, int] | None
    """The table of blocks without excluded scores; None if there is no such table."""
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Roles in an attention kernel. ``kind``: ``forward``, or gradients: ``queries``, ``keys`` (and values).

    ``key_batches`` is 1 where all batches share keys. ``score``, ``mask`` and ``gradient`` are the positions
    of the results of the functions on single scores. ``parts`` is the number of parts of the keys. With
    ``packed``, the rows of a tile are the queries of all heads that share keys. The kernel's stores, in
    order: for ``forward`` the result, base-2 logarithms of sums and (if used) largest scores; for ``queries``
    the gradient, then additions to buffers; for ``keys`` two gradients.
    """

    kind: str
    axes: Axes
    batch: Expr
    key_batches: Expr
    heads: int
    """The number of query heads."""
    group: int
    """The number of query heads that share a key head."""
    queries: Expr
    keys: Expr
    depth: int
    """The number of elements in a row of queries or keys."""
    width: int
    """The number of elements in a row of values."""
    scale: float
    """The factor of the products before the score function."""
    loads: dict[str, int]
    """Positions of the loads of whole tensors, by role, for example "query"."""
    score: int
    mask: int | None
    gradient: int | None = None
    tables: Tables | None = None
    """The block mask; None without one."""
    parts: int = 1
    packed: bool = False


def attention_of(kernel: Kernel) -> Attention:
    """Return the roles of an attention kernel."""
    assert isinstance(kernel.roles, Attention)
    return kernel.roles


@dataclass(frozen=True)
class Modifier:
    """A lowered score function. Its first inputs are the score and its coordinates.

    ``given``: further input -> node or integer.
    """

    program: Program
    given: Mapping[str, Node | Expr]


@dataclass(eq=False, slots=True)
class AttentionCall(TemplateCall):
    """One attention kernel, in place of a call. ``tensors`` maps roles (``Attention.loads``) to tensors."""

    attention: AttentionOperator | None = None
    kind: str = ""
    """As in ``Attention``: "forward", "queries" or "keys"."""
    tensors: dict[str, Node] = field(default_factory=dict)
    tables: tuple[Node, ...] = ()
    """Tensors of the block mask: counts and numbers of partial blocks, then of whole blocks."""
    score: Modifier | None = None
    mask: Modifier | None = None
    gradient: Modifier | None = None
    """The gradient of the score function, for backward kernels."""
    additions: tuple[Node, ...] = ()
    """For each addition to a buffer, the tensor that receives the addition."""
    parts: int = 1
