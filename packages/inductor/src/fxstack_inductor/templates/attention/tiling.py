"""Choose tile sizes of attention kernels: the queries and keys of a program, and its number of warps.

Registers limit a tile: a forward keeps the sums of its rows, a backward the sums of one or two sides. The
sizes are the largest ones that compile ahead of time for an A100 and an H100 without register spills
(``tests/sweeps/attention_ahead.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

from fxstack_inductor.ir.expr import Expr, as_expr, floordiv
from fxstack_inductor.ir.kernel import Kernel, Load
from fxstack_inductor.templates.attention.records import attention_of
from fxstack_inductor.tiling.kernels import KernelConfig
from fxstack_inductor.tiling.tiles import power_of_two

MIN_SIDE = 16
"""The shortest side of a tile that matrix instructions take."""


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """The numbers of queries and keys in a tile, of elements in key and value rows (powers of two), and of
    warps and pipelined loads.
    """

    bm: int
    """Queries of a tile."""
    bn: int
    """Keys of a tile."""
    bd: int
    """Elements of a row of queries or keys, rounded up."""
    be: int
    """Elements of a row of values, rounded up."""
    num_warps: int
    num_stages: int

    @property
    def constants(self) -> dict[str, int]:
        return {"BM": self.bm, "BN": self.bn, "BD": self.bd, "BE": self.be}


Sizes = tuple[int, int, int, int]
"""Queries, keys, warps, stages."""

HALF: dict[tuple[str, int], Sizes] = {
    ("forward", 64): (128, 64, 8, 3),
    ("forward", 128): (128, 64, 8, 3),
    ("forward", 256): (64, 32, 8, 2),
    ("queries", 64): (64, 64, 4, 3),
    ("queries", 128): (64, 64, 8, 2),
    ("queries", 256): (32, 32, 8, 1),
    ("keys", 64): (64, 64, 8, 2),
    ("keys", 128): (32, 64, 8, 2),
    ("keys", 256): (32, 32, 8, 1),
}
SINGLE: dict[tuple[str, int], Sizes] = {
    ("forward", 64): (64, 32, 8, 2),
    ("forward", 128): (32, 32, 8, 1),
    ("forward", 256): (16, 32, 8, 1),
    ("queries", 64): (32, 32, 8, 2),
    ("queries", 128): (32, 16, 8, 1),
    ("queries", 256): (16, 16, 8, 1),
    ("keys", 64): (32, 32, 8, 2),
    ("keys", 128): (16, 32, 8, 1),
    ("keys", 256): (16, 16, 8, 1),
}
"""(kind, largest length of a row) -> sizes. ``HALF`` is for half precision.

``SINGLE`` is for float32, which does not use matrix instructions.
"""


@dataclass(frozen=True)
class AttentionTiling:
    """``kernel`` with its tile sizes; ``tabled``: whether the tables of a block mask list the tiles."""

    kernel: Kernel
    config: AttentionConfig
    tabled: bool
    kind: str = "attention"
    """The structure of the kernel, as in ``Tiling.kind``. ``Attention.kind`` says which of the three kernels it is."""

    @cached_property
    def grid(self) -> Expr:
        """The number of Triton programs that one launch starts."""
        a = attention_of(self.kernel)
        if a.kind == "keys":
            return a.key_batches * (a.heads // a.group) * _blocks(a.keys, self.config.bn)
        sharing = a.group if a.packed else 1
        tiles = _blocks(a.queries * sharing, self.config.bm)
        return a.batch * (a.heads // sharing) * a.parts * tiles


def _blocks(size: Expr, block: int) -> Expr:
    """Return how many blocks cover ``size``."""
    return floordiv(size + (block - 1), block)


def tile_attention(kernel: Kernel, config: KernelConfig | None = None) -> AttentionTiling:
    """Return good sizes without a search; ``config`` is always None.

    Tables whose blocks fit no tile are ignored: every score is masked instead.
    """
    assert config is None
    a = attention_of(kernel)
    loaded = kernel.values[a.loads["query"]]
    assert isinstance(loaded, Load)
    wide = next(b.dtype for b in kernel.buffers if b.name == loaded.buffer).itemsize > 2
    longest = max(64, power_of_two(max(a.depth, a.width)))
    bm, bn, warps, stages = (SINGLE if wide else HALF)[a.kind, longest]
    rows = a.queries * (a.group if a.packed else 1)
    bm, bn = _least(bm, rows), _least(bn, a.keys)
    tabled = False
    if a.tables is not None:
        rows_, columns = a.tables.rows, a.tables.columns
        if a.kind == "keys":
            rows_, columns = columns, rows_
        whole = a.queries.as_int()
        held = a.packed and whole is not None and whole <= rows_  # all queries are in the first block
        fit = bm if held else _part(bm, rows_)
        tabled = fit >= MIN_SIDE and _part(bn, columns) >= MIN_SIDE
        if tabled:
            bm, bn = fit, _part(bn, columns)
    bd, be = (max(MIN_SIDE, power_of_two(side)) for side in (a.depth, a.width))
    return AttentionTiling(kernel, AttentionConfig(bm, bn, bd, be, warps, stages), tabled)


def _least(block: int, size: Expr | int) -> int:
    """Return ``block``, or a smaller power of two that still covers ``size``."""
    static_size = as_expr(size).as_int()
    return block if static_size is None else min(block, max(MIN_SIDE, power_of_two(static_size)))


def _part(block: int, size: int) -> int:
    """Return the largest power of two that divides both."""
    return gcd(block, size)
