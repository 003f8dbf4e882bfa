"""Build an attention as one loop-level kernel: loads of whole tensors, and computations on single scores."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ZERO, Expr, Var, as_expr, in_range, mod, of_atom, value_var
from fxstack_inductor.ir.kernel import Check, Constant, IndexValue, Kernel, Load, Loop, Store
from fxstack_inductor.ir.nodes import Input, Node, Pointwise, resolve, value_dtype
from fxstack_inductor.schedule.build import Builder, address
from fxstack_inductor.schedule.fusion.state import Group
from fxstack_inductor.schedule.loops import find_sizes
from fxstack_inductor.schedule.steps import KernelStep
from fxstack_inductor.templates.attention.records import (
    ATTENTION,
    GRAD,
    SCORE,
    Attention,
    AttentionCall,
    Axes,
    Modifier,
    Tables,
)

MAX_PACKED_ROWS = 64
"""If the heads that share keys have at most this many query rows in total, one tile holds all these heads."""
LETTERS = ["b", "h", "k", "m", "n", "d", "e", "s", "q", "j"]


def attention_step(call: AttentionCall) -> KernelStep:
    """Return the launch of ``call``; ``build_kernels`` calls this function through ``TemplateCall.build``."""
    maker = _Maker(call)
    kernel = maker.kernel()
    stored = tuple(call.outputs)
    written = {node.name for node in stored}
    reads = tuple(node for node in maker.builder.buffers.values() if node.name not in written)
    return KernelStep(kernel, stored, reads)


class _All:
    """The set of all pointwise tensors: score functions keep no intermediate tensor in memory."""

    def __contains__(self, node: object) -> bool:
        return isinstance(node, Pointwise)


class _Builder(Builder):
    """A builder that replaces the inputs of score functions by their given values (``given``)."""

    def __init__(self) -> None:
        inlined: Collection[Node] = _All()  # type: ignore[assignment]
        super().__init__(Group([], None, {}, 0, 0, 0), inlined)
        self.given: dict[str, int | Expr | Node] = {}
        self.constants: dict[str, torch.Tensor] = {}

    def single(self, modifier: Modifier, leading: Sequence[int | Expr]) -> list[int]:
        """Return the positions of the results of ``modifier``, applied to ``leading``."""
        program = modifier.program
        names = program.parameters[: len(leading)]
        self.given = {**modifier.given, **dict(zip(names, leading, strict=True))}
        self.constants = program.constants
        # With other inputs, the same nodes have other values.
        self.memo.clear()
        self.bodies.clear()
        return [self._result(node) for node in program.outputs]

    def _result(self, node: object) -> int:
        """Return the position of a result of the score function."""
        base, coords = resolve(node, ())  # type: ignore[arg-type]
        return self.node(base, [c for c in coords if isinstance(c, Expr)], None)

    def _node(self, node: Node, coords: tuple[Expr | int, ...], mask: int | None) -> int:
        """Return the value of an input that is given; evaluate all other tensors."""
        if not isinstance(node, Input) or (value := self._known(node)) is None:
            return super()._node(node, coords, mask)
        if isinstance(value, int):
            return value
        if isinstance(value, Expr):
            return self.emit(IndexValue(value, torch.int64))
        where = [c if isinstance(c, Expr) else value_var(f"v{c}") for c in coords]
        return self.load(value, where, mask)

    def _known(self, node: Input) -> int | Expr | Node | None:
        """Return the value that is given for an input; a constant becomes a value of the kernel."""
        if node.name in self.constants:
            number = self.constants[node.name]
            return self.emit(Constant(repr(number.item()), value_dtype(number.dtype)))
        return self.given.get(node.name)

    def index(self, position: int, size: Expr) -> Expr:
        """Return value ``position`` as a coordinate within ``size``; negative values count from the end."""
        value = self.values[position]
        if isinstance(value, IndexValue) and in_range(value.expr, size):
            return value.expr
        return value_var(f"v{self.emit(Check(position, size, torch.int64, None, True))}")

    def load(self, node: Node, coords: Sequence[Expr], mask: int | None = None) -> int:
        """Return the position of a load of ``node`` at ``coords``."""
        base, places = resolve(node, coords)
        exact = [coord for coord in places if isinstance(coord, Expr)]
        self.buffers[base.name] = base
        dtype = value_dtype(base.dtype)
        other = None if mask is None else self.emit(Constant("0", dtype))
        return self.emit(Load(base.name, address(base, exact), dtype, mask, other))


class _Maker:
    """Builds the kernel of one call, for ``attention_step``."""

    def __init__(self, call: AttentionCall) -> None:
        self.call, self.builder = call, _Builder()
        query, key, value = (call.tensors[role] for role in ("query", "key", "value"))
        self.batch, self.heads, self.queries, self.depth = query.shape
        self.keys, self.width = key.shape[2], value.shape[3]
        self.key = key
        heads, shared = self.heads.as_int() or 1, key.shape[1].as_int() or 1
        self.group = heads // shared
        tables = call.tables
        rows = tables[0].shape[-1] if tables else as_expr(1)
        extents = (
            *(self.batch, self.heads, key.shape[1], self.queries, self.keys, self.depth, self.width),
            *(as_expr(call.parts), rows, tables[1].shape[-1] if tables else as_expr(1)),
        )
        variables = [
            Var(f"z{letter}", VarKind.LOOP, size) for letter, size in zip(LETTERS, extents, strict=True)
        ]
        self.axes = Axes(*variables)
        self.at = dict(zip(LETTERS, (of_atom(var) for var in variables), strict=True))

    def kernel(self) -> Kernel:
        """Return the kernel, with the roles of its values in ``Kernel.roles``."""
        loads = self._loads()
        score, mask, gradient, additions = self._functions()
        tables = self._tables()
        stores = [*self._results(), *additions]
        axes = self.axes
        outer = (axes.b, axes.h, axes.k, axes.m, axes.d, axes.e, axes.s, axes.q, axes.j)
        builder, call = self.builder, self.call
        assert call.attention is not None
        kernel = Kernel(
            name=call.name,
            outer=tuple(Loop(var, var.extent or ZERO) for var in outer),
            inner=(Loop(axes.n, self.keys),),
            values=tuple(builder.values),
            stores=tuple(stores),
            buffers=builder.references(),
            sizes=(),
            origins=(call.outputs[0].origin,),
            comments=(call.comment,) if call.comment else (),
            template=ATTENTION,
            roles=Attention(
                call.kind, axes, self.batch, self.key.shape[0], self.heads.as_int() or 1, self.group,
                self.queries, self.keys, self.depth.as_int() or 1, self.width.as_int() or 1,
                call.attention.scale, loads, score, mask, gradient, tables, call.parts, self._packed(),
            ),
        )  # fmt: skip
        return find_sizes(kernel)

    def _packed(self) -> bool:
        """Whether one tile should hold the queries of all heads that share keys, because queries are few."""
        queries = self.queries.as_int()
        few = self.group > 1 and queries is not None and queries * self.group <= MAX_PACKED_ROWS
        # The heads of one tile read the same row of each table.
        alike = all(table.shape[1] == 1 for table in self.call.tables)
        return self.call.kind == "forward" and few and alike

    def _loads(self) -> dict[str, int]:
        """Add the loads of whole tensors; return their positions by role."""
        at, load, tensors = self.at, self.builder.load, self.call.tensors
        where = {
            "query": [at["b"], at["h"], at["m"], at["d"]],
            "key": [self._key_batch(), at["k"], at["n"], at["d"]],
            "value": [self._key_batch(), at["k"], at["n"], at["e"]],
            "grad": [at["b"], at["h"], at["m"], at["e"]],
            "sums": [at["b"], at["h"], at["m"]],
            "delta": [at["b"], at["h"], at["m"]],
        }
        return {role: load(node, where[role]) for role, node in tensors.items()}

    def _key_batch(self) -> Expr:
        """Return the batch coordinate of keys, which all batches may share."""
        return self.at["b"] if self.key.shape[0] == self.batch else ZERO

    def _functions(self) -> tuple[int, int | None, int | None, list[Store]]:
        """Return the positions of score, mask and gradient (None where missing), and stores that add to buffers."""
        call, builder, at = self.call, self.builder, self.at
        assert call.score is not None
        where = [at["b"], at["h"], at["m"], at["n"]]
        score_load = builder.emit(Load(SCORE, ZERO, torch.float32))
        (score,) = builder.single(call.score, [score_load, *where])
        mask = None
        if call.mask is not None:
            (mask,) = builder.single(call.mask, where)
        if call.gradient is None:
            return score, mask, None, []
        grad = builder.emit(Load(GRAD, ZERO, torch.float32))
        first, *rest = builder.single(call.gradient, [score_load, *where, grad])
        # The kernel of the keys computes these gradients too. Only one kernel may add them.
        return score, mask, first, self._additions(rest) if call.kind == "queries" else []

    def _additions(self, results: Sequence[int]) -> list[Store]:
        """Return the stores that add gradients to buffers at the places that the score function looked up."""
        remaining, stores = iter(results), []
        assert self.call.attention is not None
        for addition, target in zip(self.call.attention.additions, self.call.additions, strict=True):
            indices = [next(remaining) for _ in range(addition.indices)]
            value = next(remaining)
            where = [self.builder.index(k, size) for k, size in zip(indices, target.shape, strict=True)]
            self.builder.buffers[target.name] = target
            stores.append(Store(target.name, address(target, where), value, "add"))
        return stores

    def _results(self) -> list[Store]:
        """Return the stores of the results, whose values the writer computes."""
        at = self.at
        parts = [at["s"]] if self.call.parts > 1 else []
        row = [*parts, at["b"], at["h"], at["m"]]
        where = {
            "forward": ([*row, at["e"]], row, row),
            "queries": ([*row, at["d"]],),
            "keys": (
                [self._key_batch(), at["k"], at["n"], at["d"]],
                [self._key_batch(), at["k"], at["n"], at["e"]],
            ),
        }[self.call.kind]
        stores = []
        for node, coords in zip(self.call.outputs, where, strict=False):
            self.builder.buffers[node.name] = node
            stores.append(Store(node.name, address(node, coords), 0))
        return stores

    def _tables(self) -> Tables | None:
        """Return the loads of the block mask's tables; None without a block mask."""
        call = self.call
        if not call.tables:
            return None
        assert call.attention is not None
        assert call.attention.blocks is not None
        positions = [self._table(table) for table in call.tables]
        rows, columns = call.attention.blocks
        if call.kind == "keys":
            rows, columns = columns, rows
        whole = (positions[2], positions[3]) if len(positions) > 2 else None
        return Tables((positions[0], positions[1]), whole, rows, columns)

    def _table(self, table: Node) -> int:
        """Return the position of the load of a table's entry; a mask may be shared by batches or by heads."""
        at = self.at
        batches, heads = table.shape[:2]
        b = at["b"] if batches == self.batch else mod(at["b"], batches)
        h = at["h"] if heads == self.heads else mod(at["h"], heads)
        entry = [at["j"]] if len(table.shape) == len("bhqj") else []
        return self.builder.load(table, [b, h, at["q"], *entry])
