"""Write attention as Triton source: an online softmax, and its gradients from the saved sums of the rows.

The algorithm is FlashAttention-2 (Dao, 2023): only one tile of scores exists at a time. The backward
recomputes the scores, by rows for the gradient of queries, and by columns for the gradients of keys and
values. The tables of a block mask list the tiles to compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import log2

import torch

from fxstack_inductor.codegen.index_text import triton_index
from fxstack_inductor.codegen.triton.writer import KernelWriter
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import Expr, Var, of_atom
from fxstack_inductor.ir.kernel import Load, Store, Value, index_operands, with_expressions
from fxstack_inductor.schedule.int32_indexing import INT32
from fxstack_inductor.templates.attention.records import GRAD, SCORE, attention_of
from fxstack_inductor.templates.attention.tiling import AttentionTiling

LOG2E = log2(2.718281828459045)
NOTHING = 'float("-inf")'
ROW, COLUMN = "[:, None]", "[None, :]"


Body = Callable[..., None]
"""Writes the code for one tile; its argument ``masked`` says that some scores of the tile may be excluded."""


class AttentionWriter(KernelWriter):
    """Writes one function. ``Attention.loads`` has the names of the roles."""

    def __init__(self, tiling: AttentionTiling) -> None:
        super().__init__(tiling)
        self.tiles = tiling
        self.attention = attention_of(self.kernel)
        self.roles = {role: self._role(position) for role, position in self.attention.loads.items()}
        self.plain = self.kernel.values
        values = tuple(self._on_tile(value) for value in self.kernel.values)
        self.kernel = replace(self.kernel, values=values)
        stored = self.dtypes[self.roles["query"].buffer]
        # Triton multiplies float32 in TF32 by default; eager does not.
        self.precision = ', input_precision="ieee"' if stored is torch.float32 else ""

    def function(self, name: str) -> str:
        {"forward": self._forward, "queries": self._queries, "keys": self._keys}[self.attention.kind]()
        return self.definition(name, self.tiles.config.constants)

    def _integer(self) -> str:
        """Return the integer type. Only tensors decide, because single scores have no buffer."""
        sizes = [ref.numel.bounds()[1] for ref in self.kernel.buffers]
        return "tl.int32" if all(s is not None and s <= INT32 for s in sizes) else "tl.int64"

    # --- coordinates -----------------------------------------------------------------------------

    def _role(self, position: int) -> Load:
        """Return the load of a whole tensor."""
        value = self.kernel.values[position]
        assert isinstance(value, Load)
        return value

    def _texts(self, **more: str) -> dict[Var, Expr]:
        """Map each loop variable to its name in Triton. ``more``: names that depend on where an address is used."""
        axes = self.attention.axes
        texts = {"b": "b", "h": "h", "k": "hk", "s": "part", **more}
        substitution = {}
        for letter, text in texts.items():
            var = getattr(axes, letter)
            substitution[var] = of_atom(Var(text, VarKind.LOOP, var.extent))
        return substitution

    def _heads(self, lanes: str) -> str:
        """Return the head of a query: one per program, or (packed) one per row."""
        return f"h{lanes}" if self.attention.packed else "h"

    def _tile_texts(self) -> dict[Var, Expr]:
        """Map each loop variable to its name in code for single scores."""
        return self._texts(h=self._heads(ROW), m=f"m{ROW}", n=f"n{COLUMN}")

    def _on_tile(self, value: Value) -> Value:
        """Return ``value`` with the coordinate names that the code for single scores uses."""
        texts = self._tile_texts()
        return with_expressions(value, lambda expr: expr.subs(texts))

    def _address(self, index: Expr) -> tuple[str, str]:
        return f"{triton_index(index)} + zero", "inside"

    def _zero(self) -> str:
        return "zero"

    def _everywhere(self) -> str:
        return "inside"

    def _load(self, load: Load) -> str:
        return {SCORE: "s", GRAD: "ds"}.get(load.buffer) or super()._load(load)

    # --- where a program is ----------------------------------------------------------------------

    def _program(self, size: str, block: str, *before: str) -> None:
        """Write ``tile``: the number of the program's tile of ``block`` rows, along a side of ``size`` rows.

        Then ``pid`` is the number of the program among the programs with the same ``tile``.
        """
        self.line(f"M = {triton_index(self.attention.queries)}")
        self.line(f"N = {triton_index(self.attention.keys)}")
        self.line("pid = tl.program_id(0)")
        for text in (
            *before,
            f"tiles = tl.cdiv({size}, {block})",
            "tile = pid % tiles",
            "pid = pid // tiles",
        ):
            self.line(text)

    def _places(self) -> None:
        """Write which rows a program has, for programs that iterate over keys."""
        attention, integer = self.attention, self._integer()
        sharing = attention.group if attention.packed else 1
        self._program("rows", "BM", f"rows = M * {sharing}")
        if attention.parts > 1:
            self.line(f"part = (pid % {attention.parts}).to({integer})")
            self.line(f"pid = pid // {attention.parts}")
        self.line(f"b = (pid // {attention.heads // sharing}).to({integer})")
        self.line(f"row = tile.to({integer}) * BM + tl.arange(0, BM).to({integer})")
        self.line("valid = row < rows")
        if attention.packed:
            self.line(f"hk = (pid % {attention.heads // sharing}).to({integer})")
            self.line(f"h = hk * {sharing} + row // M")
            self.line("m = row % M")
            return
        self.line(f"h = (pid % {attention.heads}).to({integer})")
        self.line(f"hk = h // {attention.group}")
        self.line("m = row")

    def _fetch(self, name: str, role: str, letter: str) -> None:
        """Write the load of a tile ``name``: rows ``letter`` of the tensor with ``role``."""
        wide = {"query": "d", "key": "d", "value": "e", "grad": "e"}.get(role)
        load = self.roles[role]
        index, mask = self._tile(load.index, letter, wide)
        self.line(f"{name} = tl.load({self.pointers[load.buffer]} + ({index}), mask={mask}, other=0)")

    def _tile(self, index: Expr, letter: str, wide: str | None) -> tuple[str, str]:
        """Return the address and mask of a tile of rows ``letter``.

        A row extends along ``wide``; None: it is one number.

        The address has the tile's shape: axes that the index lacks are added times zero.
        """
        inside = {"m": "valid", "n": "(n < N)"}[letter]
        lanes = {letter: f"{letter}{ROW}" if wide else letter}
        if letter == "m":
            lanes["h"] = self._heads(ROW if wide else "")
        if wide:
            lanes[wide] = f"{wide}{COLUMN}"
        text = triton_index(index.subs(self._texts(**lanes)))
        along = [lane for lane in (letter, wide) if lane]
        missing = [x for x in along if getattr(self.attention.axes, x) not in index.variables]
        address = " + ".join([text, *(f"{lanes[lane]} * 0" for lane in missing)])
        return address, self._columns(f"{inside}{ROW}" if wide else inside, wide)

    def _columns(self, mask: str, letter: str | None) -> str:
        """Return ``mask``, restricted to elements within a row."""
        if letter is None:
            return mask
        size, block = {"d": (self.attention.depth, "BD"), "e": (self.attention.width, "BE")}[letter]
        whole = size == self.tiles.config.constants[block]
        return mask if whole else f"{mask} & ({letter} < {size}){COLUMN}"

    def _put(self, store: Store, value: str, letter: str, wide: str | None) -> None:
        """Write the store of ``value`` to rows ``letter``. A row extends along ``wide``; None: it is one number."""
        index, mask = self._tile(store.index, letter, wide)
        pointer = self.pointers[store.buffer]
        self.line(f"tl.store({pointer} + ({index}), ({value}).to({pointer}.dtype.element_ty), mask={mask})")

    def _ranges(self) -> None:
        """Write the element numbers within rows of keys and of values."""
        integer = self._integer()
        self.line(f"d = tl.arange(0, BD).to({integer})")
        self.line(f"e = tl.arange(0, BE).to({integer})")

    # --- single scores ---------------------------------------------------------------------------

    def _scores(self, *, masked: bool, rows: bool) -> None:
        """Write ``s`` (products) and ``score`` (functions applied, masked).

        ``rows``: mask rows beyond the last query as well.
        """
        attention = self.attention
        self.line(f"s = tl.dot(q, tl.trans(k){self.precision}) * {attention.scale!r}")
        self.line(f"inside = valid{ROW} & (n < N){COLUMN}")
        self.line(f"zero = m{ROW} * 0 + n{COLUMN} * 0")
        roots = (
            [attention.score] if attention.mask is None or not masked else [attention.score, attention.mask]
        )
        self._compute(roots)
        self.line(f"score = tl.broadcast_to(v{attention.score}, [BM, BN])")
        seen = "inside" if rows else f"(n < N){COLUMN}"
        if len(roots) > 1:
            seen = f"{seen} & v{attention.mask}"
        # Scores become base-2 exponents, because GPUs have an instruction for exp2 but none for exp.
        self.line(f"score = tl.where({seen}, score, {NOTHING}) * {LOG2E!r}")

    def _compute(self, roots: Iterable[int], done: frozenset[int] = frozenset()) -> frozenset[int]:
        """Write the values that ``roots`` need and that are not in ``done``.

        Return the positions of all written values.
        """
        needed = self.facts.needed(roots)
        for k in needed:
            if k not in done:
                self._value(k)
        return done | frozenset(needed)

    # --- which tiles there are -------------------------------------------------------------------

    def _each(self, along: str, body: Body, first: str) -> None:
        """Write ``body`` for each tile along ``along`` (``n`` or ``m``); ``first``: the row in the tables."""
        block = {"n": "BN", "m": "BM"}[along]
        if not self.tiles.tabled:
            self._dense(along, block, body)
            return
        tables = self.attention.tables
        assert tables is not None
        self.line(f"blocks = {first}")
        self._listed(tables.partial, tables.columns, block, body, masked=True)
        if tables.whole is not None:
            self._listed(tables.whole, tables.columns, block, body, masked=False)

    def _dense(self, along: str, block: str, body: Body) -> None:
        """Write a loop over all tiles along one side."""
        size = {"n": "N", "m": "M"}[along]
        low, high = "0", size
        if self.attention.parts > 1:
            self.line(f"share = tl.cdiv(tl.cdiv({size}, {block}), {self.attention.parts}) * {block}")
            self.line("low = part * share")
            self.line(f"high = tl.minimum({size}, low + share)")
            low, high = "low", "high"
        with self.block(f"for start in range({low}, {high}, {block}):"):
            body(masked=True)

    def _listed(self, pair: tuple[int, int], size: int, block: str, body: Body, *, masked: bool) -> None:
        """Write a loop over the tiles that a table of a block mask lists."""
        count, which = (self._table(position) for position in pair)
        ratio = size // self.tiles.config.constants[block]
        self.line(f"count = {count} * {ratio}")
        low, high = "0", "count"
        if self.attention.parts > 1:
            self.line(f"share = tl.cdiv(count, {self.attention.parts})")
            self.line("low = part.to(tl.int32) * share")
            self.line("high = tl.minimum(count, low + share)")
            low, high = "low", "high"
        with self.block(f"for turn in range({low}, {high}):"):
            self.line(f"place = turn // {ratio}")
            self.line(f"start = {which}.to({self._integer()}) * {size} + (turn % {ratio}) * {block}")
            body(masked=masked)

    def _table(self, position: int) -> str:
        """Return the text that loads a table's entry."""
        load = self.plain[position]
        assert isinstance(load, Load)
        head = f"hk * {self.attention.group}" if self.attention.packed else "h"
        index = load.index.subs(self._texts(h=head, q="blocks", j="place"))
        return f"tl.load({self.pointers[load.buffer]} + ({triton_index(index)}))"

    def _row_block(self) -> str:
        """Return the row of the tables that lists the tiles of this program's queries."""
        tables = self.attention.tables
        if tables is None or self.attention.packed:
            return f"(tile * 0).to({self._integer()})"
        return f"(tile * BM // {tables.rows}).to({self._integer()})"

    # --- the forward -----------------------------------------------------------------------------

    def _forward(self) -> None:
        """Write the online softmax over all keys, and the saved sums of the rows."""
        self._places()
        self._ranges()
        self._fetch("q", "query", "m")
        self.line(f"best = tl.full([BM], {NOTHING}, tl.float32)")
        self.line("total = tl.zeros([BM], tl.float32)")
        self.line("sums = tl.zeros([BM, BE], tl.float32)")
        self._each("n", self._forward_tile, self._row_block())
        # In a row without visible keys the sum is 0. Eager gives zeros in this row.
        self.line("safe = tl.where(total == 0, 1.0, total)")
        out, sums, *largest = self.kernel.stores
        self._put(out, f"tl.div_rn(sums, tl.broadcast_to(safe{ROW}, [BM, BE]))", "m", "e")
        self._put(sums, f"tl.where(total == 0, {NOTHING}, best + tl.log2(safe))", "m", None)
        for store in largest:
            self._put(store, "best", "m", None)

    def _forward_tile(self, *, masked: bool) -> None:
        """Write one step of the online softmax: take one tile of keys and values into the sums."""
        self.line(f"n = start + tl.arange(0, BN).to({self._integer()})")
        self._fetch("k", "key", "n")
        self._scores(masked=masked, rows=False)
        self.line("high_ = tl.maximum(best, tl.max(score, 1))")
        # A row may have no visible key so far. -inf minus -inf would be NaN.
        self.line(f"base = tl.where(high_ == {NOTHING}, 0.0, high_)")
        self.line(f"p = tl.exp2(score - base{ROW})")
        self.line("fade = tl.exp2(best - base)")
        self.line("total = total * fade + tl.sum(p, 1)")
        self._fetch("v", "value", "n")
        self.line(f"sums = tl.dot(p.to(v.dtype), v, sums * fade{ROW}{self.precision})")
        self.line("best = high_")

    # --- the backward ----------------------------------------------------------------------------

    def _fetch_rows(self) -> None:
        """Write the loads of the values that the backward needs for each query."""
        self._fetch("q", "query", "m")
        self._fetch("do", "grad", "m")
        self._fetch("logs", "sums", "m")
        self._fetch("delta", "delta", "m")
        # In a row without visible keys, -inf minus -inf would be NaN.
        self.line(f"logs = tl.where(logs == {NOTHING}, 0.0, logs)")

    def _gradient(self, *, masked: bool) -> None:
        """Write ``p`` (the weights) and ``ds`` (the gradient of the products) of one tile."""
        attention = self.attention
        assert attention.gradient is not None
        self._scores(masked=masked, rows=True)
        self.line(f"p = tl.exp2(score - logs{ROW})")
        self.line(f"dp = tl.dot(do, tl.trans(v){self.precision})")
        self.line(f"ds = p * (dp - delta{ROW})")
        roots = [attention.gradient]
        additions = [s for s in self.kernel.stores if s.op]
        for store in additions:
            roots += [store.value, *index_operands(store.index)]
        self._compute(roots)
        seen = "inside"
        if masked and attention.mask is not None:
            seen = f"inside & v{attention.mask}"
        for store in additions:
            self._add(store, seen)
        self.line(f"ds = tl.where({seen}, tl.broadcast_to(v{attention.gradient}, [BM, BN]), 0.0)")

    def _add(self, store: Store, seen: str) -> None:
        """Write the atomic addition of gradients to a buffer, where ``seen`` holds."""
        index = triton_index(store.index.subs(self._tile_texts()))
        value = f"tl.broadcast_to(v{store.value}, [BM, BN]).to(tl.float32)"
        pointer = f"{self.pointers[store.buffer]} + ({index} + zero)"
        self.line(f"tl.atomic_add({pointer}, {value}, mask={seen})")

    def _queries(self) -> None:
        """Write the gradient of the queries, by rows."""
        self._places()
        self._ranges()
        self._fetch_rows()
        self.line("dq = tl.zeros([BM, BD], tl.float32)")
        self._each("n", self._queries_tile, self._row_block())
        self._put(self.kernel.stores[0], f"dq * {self.attention.scale!r}", "m", "d")

    def _queries_tile(self, *, masked: bool) -> None:
        """Write what one tile of keys adds to the gradient of the queries."""
        self.line(f"n = start + tl.arange(0, BN).to({self._integer()})")
        self._fetch("k", "key", "n")
        self._fetch("v", "value", "n")
        self._gradient(masked=masked)
        self.line(f"dq = tl.dot(ds.to(k.dtype), k, dq{self.precision})")

    def _keys(self) -> None:
        """Write the gradients of keys and values, by columns."""
        attention, integer = self.attention, self._integer()
        self._program("N", "BN")
        shared = attention.heads // attention.group
        self.line(f"hk = (pid % {shared}).to({integer})")
        self.line(f"n = tile.to({integer}) * BN + tl.arange(0, BN).to({integer})")
        self._ranges()
        self.line(f"b = (pid // {shared}).to({integer})")
        self._fetch("k", "key", "n")
        self._fetch("v", "value", "n")
        self.line("dk = tl.zeros([BN, BD], tl.float32)")
        self.line("dv = tl.zeros([BN, BE], tl.float32)")
        alone = attention.key_batches == attention.batch
        batches = "" if alone else f" * ({triton_index(attention.batch)})"
        with self.block(f"for head in range(0, {attention.group}{batches}):"):
            if not alone:
                self.line(f"b = head // {attention.group} + b * 0")
            self.line(f"h = hk * {attention.group} + head % {attention.group}")
            row = self.attention.tables.rows if self.attention.tables else 1
            self._each("m", self._keys_tile, f"(tile * BN // {row}).to({integer})")
        dk, dv = self.kernel.stores
        self._put(dk, f"dk * {attention.scale!r}", "n", "d")
        self._put(dv, "dv", "n", "e")

    def _keys_tile(self, *, masked: bool) -> None:
        """Write what one tile of queries adds to the gradients of keys and values."""
        self.line(f"m = start + tl.arange(0, BM).to({self._integer()})")
        self.line("valid = m < M")
        self._fetch_rows()
        self._gradient(masked=masked)
        self.line(f"dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv{self.precision})")
        self.line(f"dk = tl.dot(tl.trans(ds.to(q.dtype)), q, dk{self.precision})")


def write_attention(tiling: AttentionTiling, name: str) -> str:
    """Return the text of the Triton function ``name``: ``Template.write`` of attention."""
    return AttentionWriter(tiling).function(name)
