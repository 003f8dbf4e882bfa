"""Write one kernel of the loop IR as the text of a Triton function.

The outer loops are one axis ``x`` (a block of points per program), the inner loops a second axis ``r``. The
module ``tiles`` divides a kernel's loops.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

import torch

from fxstack_inductor.codegen.index_text import triton_index, wide_index
from fxstack_inductor.codegen.triton import centred, draws
from fxstack_inductor.codegen.triton import float8 as triton_float8
from fxstack_inductor.codegen.triton import ops as triton_ops
from fxstack_inductor.codegen.triton.combinations import LAST, Combinations
from fxstack_inductor.codegen.triton.points import Runs, digits
from fxstack_inductor.ir.analysis import Analysis, analyse
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import Expr, Var
from fxstack_inductor.ir.kernel import (
    CENTRED,
    Check,
    Compute,
    Constant,
    IndexValue,
    Load,
    Loop,
    Reduce,
    Scan,
    Store,
    index_operands,
    operands,
)
from fxstack_inductor.schedule.int32_indexing import INT32, fits, magnitude, narrow
from fxstack_inductor.tiling.kernels import FLOAT8_NAMES, KernelTiling
from fxstack_inductor.tiling.tiles import extent
from fxstack_interchange.code_writer import CodeWriter

SCANS = MappingProxyType(
    {"sum": "_sum", "prod": "_product", "max": "_maximum", "min": "_minimum", "logaddexp": "_logaddexp"}
)
"""Prelude functions that combine running values in the registers' precision, as torch's CUDA kernels do."""
POSITIONS = frozenset({"argmax", "argmin"})
"""Scans of pairs: a value and its position."""
ATOMICS = MappingProxyType({"add": "tl.atomic_add", "max": "tl.atomic_max", "min": "tl.atomic_min"})
"""Stores that combine with the old element."""


class KernelWriter(CodeWriter):
    """Writes one function; lines of the axis ``r`` exist only if there are inner loops."""

    def __init__(self, tiling: KernelTiling, program: str = "tl.program_id(0)") -> None:
        super().__init__()
        self.program = program
        """The number of the program: Triton's, or an argument of a function that a kernel of several parts calls."""
        self.kind = tiling.kind
        self.constants = tiling.config.constants
        self.kernel = kernel = tiling.kernel
        self.facts: Analysis = analyse(kernel)
        self.narrow = narrow(kernel)
        self.dtypes = {ref.name: ref.dtype for ref in kernel.buffers}
        self.by_value = {ref.name for ref in kernel.buffers if ref.by_value}
        self.pointers = {ref.name: f"a{k}" for k, ref in enumerate(kernel.buffers)}
        self.inner_vars = frozenset(loop.var for loop in kernel.inner)
        self.outer_vars = frozenset(loop.var for loop in kernel.outer)
        self.combined = Combinations(kernel)
        self.runs = Runs(kernel)

    def function(self, name: str) -> str:
        """Return the Triton function ``name``, in the structure that the tiling chose."""
        structures = {
            "flat": self._flat,
            "tiled": self._tiled,
            "persistent": self._persistent,
            "looped": self._looped,
        }
        structures[self.kind]()
        return self.definition(name, ("XBLOCK", "RBLOCK"))

    def definition(self, name: str, constants: Iterable[str]) -> str:
        """Return the function ``name`` with the lines written so far; ``constants``: compile-time parameters."""
        number = [self.program] if self.program.isidentifier() else []
        args = [
            *self.pointers.values(),
            *self.kernel.sizes,
            *number,
            *(f"{c}: tl.constexpr" for c in constants),
        ]
        text = "\n".join(["@triton.jit", f"def {name}({', '.join(args)}):", *self.lines])
        return self.combined.functions(text, name)

    # axes

    def _integer(self) -> str:
        """Return the type of index arithmetic: "tl.int32", or "tl.int64" where needed."""
        return "tl.int32" if self.narrow else "tl.int64"

    def _outer_axis(self, program: str = "") -> None:
        """Write the points ``x`` of this program, their mask, and the outer loops' variables."""
        program = program or self.program
        integer = self._integer()
        lanes = "[:, None]" if self.kernel.inner else ""
        self.line(f"xnumel = {triton_index(extent(self.kernel.outer))}")
        self.line(f"x = ({program}).to({integer}) * XBLOCK + tl.arange(0, XBLOCK).to({integer}){lanes}")
        self.line("xmask = x < xnumel")
        self.line("xzero = x * 0")
        self._coordinates("x", self.kernel.outer)

    def _inner_axis(self, offset: str) -> None:
        """Write the points ``r`` of a tile that begins at ``offset``, their mask, and the inner loops' variables."""
        integer = self._integer()
        self.line(f"r = {offset} + tl.arange(0, RBLOCK).to({integer})[None, :]")
        self.line("rmask = r < rnumel")
        self.line("rzero = r * 0")
        self._coordinates("r", self.kernel.inner)

    def _coordinates(self, axis: str, loops: tuple[Loop, ...]) -> None:
        """Write the variables of ``loops`` as digits of the point number ``axis``, and those of runs of loops."""
        for name, text in (*digits(axis, loops), *self.runs.variables(axis)):
            self.line(f"{name} = {text}")

    # structures

    def _flat(self) -> None:
        """Write the structure ``flat``: one axis of points."""
        self._outer_axis()
        roots = [s.value for s in self.kernel.stores]
        roots += [k for s in self.kernel.stores for k in index_operands(s.index)]
        for k in self.facts.needed(roots):
            self._value(k)
        self._stores(self.kernel.stores)

    def _tiled(self) -> None:
        """Write two axes of points, for accesses that run along different loops."""
        self.line(f"rnumel = {triton_index(extent(self.kernel.inner))}")
        self.line("columns = tl.cdiv(rnumel, RBLOCK)")
        self._outer_axis(f"{self.program} // columns")
        self._inner_axis(f"({self.program} % columns).to({self._integer()}) * RBLOCK")
        self._whole_tiles(self.kernel.stores)

    def _persistent(self) -> None:
        """Write tiles that hold all inner points, so that each value is computed once."""
        self._outer_axis()
        self.line(f"rnumel = {triton_index(extent(self.kernel.inner))}")
        self._inner_axis("0")
        self._whole_tiles(self.kernel.stores)

    def _whole_tiles(self, stores: Iterable[Store]) -> None:
        """Write all values and some stores for a tile that holds all inner points."""
        for k in self.facts.needed(s.value for s in self.kernel.stores):
            value = self.kernel.values[k]
            if isinstance(value, Reduce):
                self._reduce_tile(k, value)
            else:
                self._value(k)
        self._stores(stores)

    def _looped(self) -> None:
        """Write one pass over tiles of the inner axis per stage of reductions."""
        self._outer_axis()
        self.line(f"rnumel = {triton_index(extent(self.kernel.inner))}")
        emitted: set[int] = set()
        for stage in range(self.facts.last_stage + 1):
            self._outer_values(stage, emitted)
            reduces, stores = self.facts.reduces(stage), self.facts.stores(stage, inner=True)
            if reduces or stores:
                self._pass(reduces, stores)
            if stage == 0:
                self._stores(self.facts.stores(0, inner=False))
            self._outer_values(stage + 1, emitted)
            self._stores(self.facts.stores(stage + 1, inner=False))

    def _outer_values(self, stage: int, emitted: set[int]) -> None:
        """Write the values that ``stage`` makes available, and that are not in ``emitted`` yet."""
        for k in self.facts.ready(stage):
            if k not in emitted:
                self._value(k)
                emitted.add(k)

    def _pass(self, reduces: list[int], stores: list[Store]) -> None:
        """Write one loop over tiles of the inner axis: values, running reductions and scans, stores."""
        outer = self.facts.outer
        needed = [
            k for k in self.facts.needed(self.facts.roots(reduces, stores), stop=outer) if k not in outer
        ]
        for k in reduces:
            self._declare(k)
        self.combined.begin_pass()
        for k in needed:
            if isinstance(scan := self.kernel.values[k], Scan):
                self._carry(k, scan)
        with self.block("for offset in range(0, rnumel, RBLOCK):"):
            self._inner_axis("offset")
            for k in needed:
                if isinstance(scan := self.kernel.values[k], Scan):
                    self._continue(k, scan)
                else:
                    self._value(k)
            # A centred reduction reads the running value of its partner before the tile changes it.
            for k in sorted(reduces, key=lambda k: self.kernel.reduction(k).op not in CENTRED):
                self._accumulate(k)
            self._stores(stores)
        for k in reduces:
            if self.kernel.reduction(k).op not in CENTRED:
                self._finish(k)

    # values

    def _value(self, position: int) -> None:
        """Write the definition of the value at ``position``."""
        value = self.kernel.values[position]
        if isinstance(value, Scan) and value.combine is not None:
            self.write_lines(self.combined.scan(position, value))
            return
        if isinstance(value, Reduce):
            self.line(centred.finish(self.kernel, position))
            return
        self.line(f"v{position} = {self._expression(position)}")

    def _expression(self, position: int) -> str:
        """Return the Triton expression of a value; reductions have none."""
        value = self.kernel.values[position]
        match value:
            case Constant(text, dtype):
                return triton_ops.literal(text, dtype)
            case IndexValue(expr, dtype):
                return self._index_value(expr, dtype)
            case Load():
                return self._load(value)
            case Check():
                return self._check(value)
            case Compute("eager_uniform", args):
                values = [self.kernel.values[k] for k in args]
                return draws.uniform([f"v{k}" for k in args], values, *self._last_axis())
            case Compute(op, args, dtype):
                kinds = [self.kernel.values[k].dtype for k in args]
                return triton_ops.emit(op, [f"v{k}" for k in args], dtype, kinds)
            case Scan():
                return self._scan(value)
            case Reduce():
                raise AssertionError("a reduction has no expression")

    def _last_axis(self) -> tuple[tuple[Loop, ...], int, int]:
        """Return the loops along the last axis of the current tile, the points along it, and the number of axes."""
        if self._in_loop():
            return self.kernel.inner, self.constants["RBLOCK"], 2
        return ((), 1, 2) if self.kernel.inner else (self.kernel.outer, self.constants["XBLOCK"], 1)

    def _index_value(self, expr: Expr, dtype: torch.dtype) -> str:
        """Return an index expression as a value, in 64 bits if 32 may not be enough."""
        kind = triton_ops.TYPES[dtype]
        most = magnitude(expr)
        index = triton_index if most is not None and fits(most) else wide_index
        if all(v.kind is VarKind.SIZE for v in expr.variables):
            return f"tl.full([], {index(expr)}, {kind})"
        return f"({index(expr)}).to({kind})"

    def _argument(self, load: Load) -> str:
        """Return the value of a kernel argument that is a number: its bits come in an integer."""
        bits = f"(tl.full([], 0, tl.int64) + {self.pointers[load.buffer]})"
        if not self.dtypes[load.buffer].is_floating_point:
            return triton_ops.cast(bits, torch.int64, load.dtype)
        return triton_ops.cast(f"{bits}.to(tl.float64, bitcast=True)", torch.float64, load.dtype)

    def _load(self, load: Load) -> str:
        """Return the expression of a load in the dtype of the computation."""
        if load.buffer in self.by_value:
            return self._argument(load)
        index, mask = self._address(load.index)
        if load.mask is not None:
            mask = f"{mask} & v{load.mask}" if mask else f"v{load.mask}"
            index = f"{index} + {self._zero()}"
            mask = f"{mask} & {self._everywhere()}"
        guard = f", mask={mask}, other=0" if mask else ""
        text = f"tl.load({self.pointers[load.buffer]} + ({index}){guard})"
        stored = self.dtypes[load.buffer]
        if stored in FLOAT8_NAMES:
            text = triton_float8.load(text, stored)
        elif stored in (torch.bfloat16, torch.float16):
            text += ".to(tl.float32)"
        elif stored is torch.bool:
            text = f"({text} != 0)"
        if load.mask is None:
            return text
        other = f"v{load.other}" if load.other is not None else triton_ops.literal("0", load.dtype)
        return f"tl.where(v{load.mask}, {text}, {other})"

    def _address(self, index: Expr) -> tuple[str, str]:
        """Return the offset, and the mask of the axes that the offset uses."""
        text, variables = triton_index(self.runs.address(index)), index.variables
        if computed := index_operands(index):
            outer = variables.isdisjoint(self.inner_vars) and self.facts.outer.issuperset(computed)
            return f"{text} + {'xzero' if outer else self._zero()}", "xmask" if outer else self._everywhere()
        masks = [
            mask
            for mask, axis in (("xmask", self.outer_vars), ("rmask", self.inner_vars))
            if not variables.isdisjoint(axis)
        ]
        return text, " & ".join(masks)

    def _in_loop(self) -> bool:
        """Whether the inner axis is in scope at the current line."""
        return bool(self.kernel.inner) and (self.depth > 1 or self.kind != "looped")

    def _zero(self) -> str:
        """Return a zero with the shape of the current tile, which gives other operands this shape."""
        return "xzero + rzero" if self._in_loop() else "xzero"

    def _everywhere(self) -> str:
        """Return the mask of the current tile."""
        return "xmask & rmask" if self._in_loop() else "xmask"

    def _check(self, check: Check) -> str:
        """Write the device assertion of an index, and return the index; a bad index reads element 0."""
        arg, size = f"v{check.arg}", triton_index(check.size)
        wrapped = f"tl.where({arg} < 0, {arg} + ({size}), {arg})" if check.wraps else arg
        outer = self.facts.outer.issuperset(operands(check))
        valid = "xmask" if outer else self._everywhere()
        valid += "" if check.mask is None else f" & v{check.mask}"
        inside = f"(({wrapped}) >= 0) & (({wrapped}) < ({size}))"
        self.line(f'tl.device_assert(({inside}) | (({valid}) == 0), "index out of bounds")')
        return f"tl.where({inside}, {wrapped}, 0)"

    def _scan(self, scan: Scan) -> str:
        """Return a scan along the tile; points outside of the loops come after all others, so they do no harm."""
        if scan.op in POSITIONS:
            return f"{self._scan_pairs(scan)}[1]"
        kind = triton_ops.TYPES[scan.dtype]
        tile = f"tl.broadcast_to(v{scan.args[0]}, [XBLOCK, RBLOCK])"
        return f"tl.associative_scan({tile}.to({kind}), 1, {SCANS[scan.op]}).to({kind})"

    def _scan_pairs(self, scan: Scan) -> str:
        """Return text of a pair of tiles: the extremes so far, and their positions."""
        value, position = (f"tl.broadcast_to(v{k}, [XBLOCK, RBLOCK])" for k in scan.args)
        pair = f"({value}, {position}.to(tl.int64))"
        return f"tl.associative_scan({pair}, 1, _last_{scan.op})"

    def _carry(self, position: int, scan: Scan) -> None:
        """Declare a scan's running value before the first tile: the neutral element."""
        if scan.combine is not None:
            self.write_lines(self.combined.carry(position, scan))
            return
        shape = "[XBLOCK, 1]"
        dtype = self.kernel.values[scan.args[0]].dtype
        op = "max" if scan.op == "logaddexp" else scan.op
        start = self._identity(op, dtype if scan.op in POSITIONS else scan.dtype)
        self.line(f"c{position} = tl.broadcast_to({start}, {shape})")
        if scan.op in POSITIONS:
            self.line(f"d{position} = tl.full({shape}, 0, tl.int64)")

    def _continue(self, position: int, scan: Scan) -> None:
        """Continue a scan from the previous tiles; the last lane of a (full) tile is the carry."""
        if scan.combine is not None:
            self.write_lines(self.combined.scan(position, scan, carried=True))
            return
        last = LAST
        if scan.op not in POSITIONS:
            kind = triton_ops.TYPES[scan.dtype]
            self.line(f"v{position} = {SCANS[scan.op]}(c{position}, {self._scan(scan)}).to({kind})")
            self.line(f"c{position} = {last.format(f'v{position}')}.to({kind})")
            return
        kind = triton_ops.TYPES[self.kernel.values[scan.args[0]].dtype]
        best = f"e{position}, f{position}"
        self.line(f"{best} = {self._scan_pairs(scan)}")
        self.line(f"{best} = _last_{scan.op}(c{position}, d{position}, {best})")
        self.line(f"c{position} = {last.format(f'e{position}')}.to({kind})")
        self.line(f"d{position} = {last.format(f'f{position}')}")
        self.line(f"v{position} = f{position}")

    # reductions

    def _identity(self, op: str, dtype: torch.dtype) -> str:
        """Return, as Triton text, the neutral element of reduction ``op``."""
        low, high = ("-inf", "inf") if dtype.is_floating_point else triton_ops.limits(dtype)
        text = {
            "sum": "0",
            "prod": "1",
            "max": low,
            "argmax": low,
            "min": high,
            "argmin": high,
            "any": "False",
            "all": "True",
        }[op]
        return triton_ops.literal(text, dtype)

    def _masked(self, position: int, op: str) -> str:
        """Return the tile of a value with the neutral element of ``op`` outside of the loops."""
        dtype = self.kernel.values[position].dtype
        tile = f"tl.broadcast_to(v{position}, [XBLOCK, RBLOCK])"
        return f"tl.where(xmask & rmask, {tile}, {self._identity(op, dtype)})"

    def _reduce_tile(self, position: int, reduce: Reduce) -> None:
        """Write the reduction of a tile that holds all inner points."""
        self.line(f"t{position} = {self._masked(reduce.args[0], reduce.op)}")
        if reduce.op.startswith("arg"):
            self.line(f"w{position} = {self._position(reduce.args[1])}")
        self._finish(position, f"t{position}", f"w{position}")

    def _position_type(self, argument: int) -> tuple[str, int]:
        """Return the type in which positions are compared, and its largest number, beyond all positions."""
        value = self.kernel.values[argument]
        most = magnitude(value.expr) if isinstance(value, IndexValue) else None
        if most is not None and fits(most):
            return "tl.int32", INT32
        return "tl.int64", 2**63 - 1

    def _position(self, argument: int) -> str:
        """Return a tile of positions for argmax or argmin; the largest number outside of the loops."""
        kind, last = self._position_type(argument)
        tile = f"tl.broadcast_to(v{argument}, [XBLOCK, RBLOCK]).to({kind})"
        return f"tl.where(xmask & rmask, {tile}, tl.full([], {last}, {kind}))"

    def _declare(self, position: int) -> None:
        """Write the running tile of a reduction before the first tile."""
        reduce = self.kernel.reduction(position)
        dtype = self.kernel.values[reduce.args[0]].dtype
        shape = "[XBLOCK, RBLOCK]"
        op = "sum" if reduce.op in CENTRED else reduce.op
        self.line(f"t{position} = tl.broadcast_to({self._identity(op, dtype)}, {shape})")
        for name in centred.RUNNING.get(reduce.op, "t")[1:]:
            self.line(f"{name}{position} = t{position}")
        if reduce.op.startswith("arg"):
            kind, last = self._position_type(reduce.args[1])
            self.line(f"w{position} = tl.full({shape}, {last}, {kind})")

    def _accumulate(self, position: int) -> None:
        """Write the step that takes the current tile into the running tile of a reduction."""
        reduce = self.kernel.reduction(position)
        new = self._masked(reduce.args[0], CENTRED.get(reduce.op, reduce.op))
        if reduce.op in CENTRED:
            self.line(centred.step(self.kernel, position, new))
            return
        if reduce.op.startswith("arg"):
            where = self._position(reduce.args[1])
            step = f"_{reduce.op}(t{position}, w{position}, {new}, {where})"
            self.line(f"t{position}, w{position} = {step}")
            return
        step = {
            "sum": "t{0} + {1}",
            "prod": "t{0} * {1}",
            "max": "_maximum(t{0}, {1})",
            "min": "_minimum(t{0}, {1})",
            "any": "t{0} | {1}",
            "all": "t{0} & {1}",
        }[reduce.op]
        self.line(f"t{position} = {step.format(position, new)}")

    def _finish(self, position: int, tile: str = "", positions: str = "") -> None:
        """Write the reduction of a tile along its inner axis, to one value per point."""
        tile, positions = tile or f"t{position}", positions or f"w{position}"
        op = self.kernel.reduction(position).op
        if op.startswith("arg"):
            self.line(f"best{position}, at{position} = tl.reduce(({tile}, {positions}), 1, _{op})")
            self.line(f"v{position} = at{position}[:, None].to(tl.int64)")
            return
        text = {
            "sum": "tl.sum({0}, 1)",
            "prod": "tl.reduce({0}, 1, _product)",
            "max": "tl.reduce({0}, 1, _maximum)",
            "min": "tl.reduce({0}, 1, _minimum)",
            "any": "(tl.max({0}.to(tl.int32), 1) != 0)",
            "all": "(tl.min({0}.to(tl.int32), 1) != 0)",
        }[op].format(tile)
        kind = triton_ops.TYPES[self.kernel.reduction(position).dtype]
        self.line(f"v{position} = {text}[:, None].to({kind})")

    # stores

    def _stores(self, stores: Iterable[Store]) -> None:
        """Write stores, masked to the points of the loops."""
        for store in stores:
            inner = bool(self.kernel.inner) and (self.kind == "tiled" or self.facts.store_inner(store))
            zero, mask = ("xzero + rzero", "xmask & rmask") if inner else ("xzero", "xmask")
            shape = "[XBLOCK, RBLOCK]" if inner else "[XBLOCK, 1]" if self.kernel.inner else "[XBLOCK]"
            mask += "".join(f" & ({v.name} == 0)" for v in self._missing(store))
            value = self._stored(f"tl.broadcast_to(v{store.value}, {shape})", store.buffer)
            pointer = (
                f"{self.pointers[store.buffer]} + ({triton_index(self.runs.address(store.index))} + {zero})"
            )
            self.line(f"{ATOMICS.get(store.op, 'tl.store')}({pointer}, {value}, mask={mask})")

    def _stored(self, value: str, buffer: str) -> str:
        """Return ``value`` converted to the dtype of ``buffer`` in memory."""
        dtype = self.dtypes[buffer]
        if dtype in FLOAT8_NAMES:
            return triton_float8.store(value, dtype)
        return f"{value}.to({triton_ops.TYPES[dtype]})"

    def _missing(self, store: Store) -> list[Var]:
        """Return the loop variables along which a pointwise kernel would store one element repeatedly."""
        if self.kind not in {"flat", "tiled"} or store.op:
            return []
        loops = (*self.kernel.outer, *self.kernel.inner)
        return [loop.var for loop in loops if loop.var not in store.index.variables]
