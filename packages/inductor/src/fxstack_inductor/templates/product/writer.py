"""Write matrix products as Triton source: a loop over the depth with matrix instructions, then an epilogue.

Programs visit the tiles in groups of rows (the order of Triton's matrix multiplication tutorial), so that
concurrent programs read the same parts of the operands. A mask is omitted where tiles divide a side. The
epilogue (the operations on each result element) processes halves or quarters of the columns in turn where the
whole tile would not fit into registers (the epilogue subtiling of Triton's persistent matrix multiplication tutorial).
"""

from __future__ import annotations

from collections.abc import Iterable

from fxstack_inductor.codegen.index_text import triton_index
from fxstack_inductor.codegen.triton import ops as triton_ops
from fxstack_inductor.codegen.triton.writer import KernelWriter
from fxstack_inductor.ir.expr import Expr, Var
from fxstack_inductor.ir.kernel import Compute, Load, Loop, Reduce, Store, index_operands
from fxstack_inductor.ir.scalar_ops import HALF_ROUNDINGS
from fxstack_inductor.templates.product.tiling import ProductTiling, dot_of, factors, variables_of
from fxstack_inductor.tiling.tiles import extent


class ProductWriter(KernelWriter):
    """Writes one function. ``masks``: mask text of each axis in scope, empty if every lane is inside."""

    def __init__(self, tiling: ProductTiling) -> None:
        super().__init__(tiling)
        self.tiles = tiling
        self.dot = dot_of(tiling.kernel)
        self.masks: dict[Var, str] = {}
        self.spread = "", ""
        self.finished = False
        """Whether the lines that follow handle elements of the finished product."""

    def function(self, name: str) -> str:
        """Return the Triton function ``name``."""
        self._places()
        self._depth()
        self._elements()
        return self.definition(name, self.tiles.config.constants)

    # --- where a program is ----------------------------------------------------------------------

    def _places(self) -> None:
        """Write the position of a program among the tiles."""
        tiles, integer = self.tiles, self._integer()
        for letter, loops in (("M", tiles.rows), ("N", tiles.columns), ("K", self.kernel.inner)):
            self.line(f"{letter} = {triton_index(extent(loops))}")
        self.line("pid = tl.program_id(0)")
        self.line("down = tl.cdiv(M, BM)")
        self.line("across = tl.cdiv(N, BN)")
        if tiles.batch:
            self.line(f"z = (pid // (down * across)).to({integer})")
            self.line("pid = pid % (down * across)")
            self._coordinates("z", tiles.batch)
        # Programs that run at the same time share rows and columns of the factors, which stay in the cache.
        self.line("first = pid // (GROUP * across) * GROUP")
        self.line("high = tl.minimum(down - first, GROUP)")
        self.line("within = pid % (GROUP * across)")
        for axis, block, at in (("i", "BM", "first + within % high"), ("j", "BN", "within // high")):
            self.line(f"{axis} = ({at}).to({integer}) * {block} + tl.arange(0, {block}).to({integer})")

    # --- the product -----------------------------------------------------------------------------

    def _depth(self) -> None:
        """Write the loop over the depth that adds up the product of a tile."""
        left, right = factors(self.kernel)
        self.line("total = tl.zeros([BM, BN], tl.float32)")
        with self.block("for offset in range(0, K, BK):"):
            self.line(f"k = offset + tl.arange(0, BK).to({self._integer()})")
            down, across = ("k", "[None, :]", self.kernel.inner), ("k", "[:, None]", self.kernel.inner)
            self._factor("left", left, ("i", "[:, None]", self.tiles.rows), down)
            self._factor("right", right, across, ("j", "[None, :]", self.tiles.columns))
            self.line("total = tl.dot(left, right, total)")
        self.line(f"v{self.dot} = total")

    def _factor(self, name: str, position: int, *axes: tuple[str, str, tuple[Loop, ...]]) -> None:
        """Write one factor's part of a tile, in full shape: Triton fails on a dot of a broadcast operand."""
        for axis, lanes, loops in axes:
            self._axis(axis, lanes, loops)
        varying = variables_of(self.kernel, position)
        if all(any(loop.var in varying for loop in loops) for _, _, loops in axes):
            self.spread = "", ""
        else:
            guards = (f"{g}{lanes}" for axis, lanes, x in axes if (g := self._inside(axis, x)))
            self.spread = " + ".join(f"{axis}_ * 0" for axis, _, _ in axes), " & ".join(guards)
        self._operand(name, position, axes)
        self.spread = "", ""

    def _operand(self, name: str, position: int, axes: tuple[tuple[str, str, tuple[Loop, ...]], ...]) -> None:
        """Write one factor: loaded directly, or computed from loads (a fused prologue)."""
        value = self.kernel.values[position]
        assert isinstance(value, Compute)
        source, kind = value.args[0], triton_ops.TYPES[HALF_ROUNDINGS[value.op]]
        loaded = self.kernel.values[source]
        if (
            isinstance(loaded, Load)
            and (self.spread[0] or all(_moves_along(loaded.index, x) for _, _, x in axes))
            and self.dtypes[loaded.buffer] is HALF_ROUNDINGS[value.op]
        ):
            index, mask = self._address(loaded.index)
            guard = f", mask={mask}, other=0" if mask else ""
            self.line(f"{name} = tl.load({self.pointers[loaded.buffer]} + ({index}){guard})")
            return
        for k in self.facts.needed([source]):
            self._value(k)
        shape = "[BM, BK]" if name == "left" else "[BK, BN]"
        text = f"tl.broadcast_to(v{source}, {shape}).to({kind})"
        inside = self._inside("k", self.kernel.inner)
        if inside:  # values computed beyond the end may be nonzero
            lanes = "[None, :]" if name == "left" else "[:, None]"
            text = f"tl.where({inside}{lanes}, {text}, 0)"
        self.line(f"{name} = {text}")

    # --- axes ------------------------------------------------------------------------------------

    def _axis(self, axis: str, lanes: str, loops: tuple[Loop, ...]) -> None:
        """Write the coordinates of ``loops`` along one side of a tile, and record their masks in ``masks``."""
        self.line(f"{axis}_ = {axis}{lanes}")
        self._coordinates(f"{axis}_", loops)
        inside = self._inside(axis, loops)
        self.masks.update({loop.var: inside and f"({inside}){lanes}" for loop in loops})

    def _inside(self, axis: str, loops: tuple[Loop, ...]) -> str:
        """Return the mask text of an axis ("i", "j" or "k"); empty if tiles divide the axis."""
        block = {"i": "BM", "j": "BN", "k": "BK"}[axis]
        size = extent(loops).as_int()
        if size is not None and size % self.tiles.config.constants[block] == 0:
            return ""
        return f"({axis} < {({'i': 'M', 'j': 'N', 'k': 'K'})[axis]})"

    def _address(self, index: Expr) -> tuple[str, str]:
        """Return the offset, and the mask of the axes that the offset uses."""
        variables = index.variables
        if any(v.kind == "value" for v in variables):
            return f"{triton_index(index)} + {self._zero()}", self._everywhere()
        if self.spread[0]:
            return f"{triton_index(index)} + {self.spread[0]}", self.spread[1]
        masks = (mask for var, mask in self.masks.items() if var in variables and mask)
        return triton_index(index), " & ".join(dict.fromkeys(masks))

    def _in_loop(self) -> bool:
        """Return False: epilogues have no inner axis."""
        return False

    def _last_axis(self) -> tuple[tuple[Loop, ...], int, int]:
        """Return the columns; factors of the product run along other axes, and share no words."""
        width = self.constants["BN"] >> self.tiles.halvings
        return (self.tiles.columns if self.finished else ()), width, 2

    # --- elements --------------------------------------------------------------------------------

    def _parts(self) -> None:
        """Open loops over halves of the columns; a half has its columns ``j`` and its part of the product."""
        name, width = f"v{self.dot}", "BN"
        self.line(f"column = (within // high).to({self._integer()}) * BN")
        for level in range(self.tiles.halvings):
            half = f"{width} // 2"
            self.line(f"both{level} = tl.permute(tl.reshape({name}, [BM, 2, {half}]), 0, 2, 1)")
            self.line(f"front{level}, back{level} = tl.split(both{level})")
            self.open(f"for half{level} in tl.static_range(2):")
            self.line(f"{name} = front{level} if half{level} == 0 else back{level}")
            width = half
        starts = (f"half{k} * (BN // {2 << k})" for k in range(self.tiles.halvings))
        self.line(f"j = {' + '.join(['column', *starts])} + tl.arange(0, {self._width()})")

    def _width(self) -> str:
        """Return, as Triton text, the number of columns of a tile that the epilogue handles at a time."""
        return "BN" + " // 2" * self.tiles.halvings

    def _elements(self) -> None:
        """Write the operations on the elements of the finished product, and the stores."""
        self.finished = True
        if self.tiles.halvings:
            self._parts()
        self._axis("i", "[:, None]", self.tiles.rows)
        self._axis("j", "[None, :]", self.tiles.columns)
        self.line("xzero = (i[:, None] + j[None, :]) * 0")
        self.line("xmask = (i < M)[:, None] & (j < N)[None, :]")
        roots = [s.value for s in self.kernel.stores]
        roots += [k for s in self.kernel.stores for k in index_operands(s.index)]
        computed = frozenset({self.dot})
        for k in self.facts.needed(roots, stop=computed):
            if not isinstance(self.kernel.values[k], Reduce):
                self._value(k)
        self._stores(self.kernel.stores)

    def _stores(self, stores: Iterable[Store]) -> None:
        """Write the stores of the finished elements."""
        whole = not any(
            self._inside(axis, loops) for axis, loops in (("i", self.tiles.rows), ("j", self.tiles.columns))
        )
        shape = f"[BM, {self._width()}]"
        for store in stores:
            value = self._stored(f"tl.broadcast_to(v{store.value}, {shape})", store.buffer)
            pointer = f"{self.pointers[store.buffer]} + ({triton_index(store.index)} + xzero)"
            self.line(f"tl.store({pointer}, {value}{'' if whole else ', mask=xmask'})")


def _moves_along(index: Expr, loops: tuple[Loop, ...]) -> bool:
    """Whether an address changes along any of ``loops``."""
    return any(loop.var in index.variables for loop in loops)


def write_product(tiling: ProductTiling, name: str) -> str:
    """Return the text of the Triton function ``name``: ``Template.write`` of products."""
    return ProductWriter(tiling).function(name)
