"""The roles of the loads, stores and values of an attention kernel.

Such a kernel has the loops ``b`` (batch), ``h`` (query's head), ``m`` (query), ``n`` (key), ``d`` and ``e``
(elements of keys and of values), and other loops that occur only in addresses. Its ``values`` hold the loads
of whole tensors, which are read tile by tile, and the computations on single scores. ``Attention`` maps each
role to the position of a value.
"""

from __future__ import annotations

from dataclasses import dataclass

from fxstack_inductor.ir.expr import Expr, Var

SCORE, GRAD = "score", "grad"
"""Pseudo-buffers of the loads of single scores and of their gradients, which are in registers."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Loop variables; ``k``: key's head, ``s``: part of keys, ``q``, ``j``: row, entry of a block table."""

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
    whole: tuple[int, int] | None
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
    group: int
    queries: Expr
    keys: Expr
    depth: int
    width: int
    scale: float
    loads: dict[str, int]
    score: int
    mask: int | None
    gradient: int | None = None
    tables: Tables | None = None
    parts: int = 1
    packed: bool = False
