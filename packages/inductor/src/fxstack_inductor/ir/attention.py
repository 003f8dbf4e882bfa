"""What the loads, stores and values of an attention kernel are for.

Such a kernel has the loops ``b`` (batch), ``h`` (query's head), ``m`` (query), ``n`` (key), ``d`` and ``e`` (elements of keys
and of values), and others that only addresses mention. Its ``values`` hold the loads of whole tensors, which are read tile by
tile, and what is computed on single scores; ``Attention`` says which is which, by position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fxstack_inductor.ir.expr import Expr, Var

SCORE, GRAD = "score", "grad"
"""What a load of single scores, or of their gradients, names in the place of a buffer: they are in registers."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The loop variables; ``k`` is a key's head, ``s`` a part of the keys, ``q`` and ``j`` a block's row and place in a table."""

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
    """Positions of the loads of a block mask: how many blocks there are, and which; ``rows`` and ``columns`` of each."""

    partial: tuple[int, int]
    whole: tuple[int, int] | None
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Attention:
    """``kind`` is ``forward``, ``queries`` (their gradient) or ``keys`` (those of keys and values).

    ``key_batches`` is 1 where all batches share keys. ``score`` and ``mask`` are the positions of results of single scores,
    ``gradient`` that of the score's gradient. ``parts``: into how many parts keys are split. ``packed``: whether rows of a tile
    are the queries of all the heads that share keys. Stores are the kernel's, in order: forward: result, base-2 logarithms of
    sums, largest scores (where wanted); queries: their gradient, then additions to buffers; keys: those of keys and values.
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
