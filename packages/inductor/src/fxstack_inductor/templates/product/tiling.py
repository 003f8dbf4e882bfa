"""Divide a matrix product into tiles: find the loops of rows and columns, and choose tile sizes.

The operands of the kernel's ``dot`` decide. Outer loops that only the left operand uses are rows, loops that
only the right operand uses are columns, and loops of both are batches. The sizes fill the matrix units of an
A100 or H100 without a search: a large tile reads each operand fewer times, a small tile keeps more processors
busy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.analysis import analyse
from fxstack_inductor.ir.expr import Expr, Var, floordiv, product
from fxstack_inductor.ir.kernel import Check, Compute, IndexValue, Kernel, Load, Loop, Reduce
from fxstack_inductor.ir.scalar_ops import EXPENSIVE
from fxstack_inductor.tiling.kernels import KernelConfig

PROCESSORS = 108
"""The number of processors of an A100, the smallest target GPU."""
MIN_SIDE = 16
"""The shortest side of a tile that matrix instructions take."""
GROUP = 8
"""The rows of tiles that neighbouring programs process column by column, to share data in the L2 cache."""

ELEMENTS_PER_THREAD = 64
"""Result elements that a thread can hold beside the epilogue's values; larger tiles are halved.

A tile is halved twice if an element takes a transcendental function, a random number, or several other tensors.
"""


@dataclass(frozen=True, slots=True)
class ProductConfig:
    """Tile sizes (rows, columns, depth of a step), warps, and pipelined loads."""

    bm: int
    """Rows of a tile."""
    bn: int
    """Columns of a tile."""
    bk: int
    """Depth of a step."""
    num_warps: int
    num_stages: int
    """The number of loads in flight."""
    group: int = GROUP
    """Rows of tiles that neighbouring programs share."""

    def __str__(self) -> str:
        """Return the name of the alternative in saved choices."""
        return f"{self.bm}x{self.bn}x{self.bk}, {self.num_warps} warps, {self.num_stages} stages"

    @property
    def constants(self) -> dict[str, int]:
        return {"BM": self.bm, "BN": self.bn, "BK": self.bk, "GROUP": self.group}


CONFIGS = (
    ProductConfig(128, 256, 64, 8, 3),
    ProductConfig(128, 128, 64, 8, 4),
    ProductConfig(128, 128, 32, 8, 4),
    ProductConfig(128, 64, 64, 4, 4),
    ProductConfig(64, 128, 64, 4, 4),
    ProductConfig(64, 64, 64, 4, 4),
    ProductConfig(64, 32, 64, 4, 5),
    ProductConfig(32, 64, 64, 4, 5),
    ProductConfig(32, 32, 128, 4, 4),
    ProductConfig(16, 64, 128, 4, 4),
    ProductConfig(64, 16, 128, 4, 4),
    ProductConfig(16, 32, 256, 4, 3),
    ProductConfig(32, 16, 256, 4, 3),
    ProductConfig(16, 16, 256, 4, 3),
    ProductConfig(16, 16, 128, 2, 4),
)
"""Sizes from large to small: a heuristic takes the first good one, a search tries all."""


@dataclass(frozen=True)
class ProductTiling:
    """``kernel`` with loops divided into batches, rows, columns and depth; a side of size one has no loop."""

    kernel: Kernel
    config: ProductConfig
    batch: tuple[Loop, ...]
    rows: tuple[Loop, ...]
    columns: tuple[Loop, ...]
    kind: str = "product"

    @cached_property
    def grid(self) -> Expr:
        """The number of programs."""
        tiles = _blocks(self.rows, self.config.bm) * _blocks(self.columns, self.config.bn)
        return product(loop.extent for loop in self.batch) * tiles

    @cached_property
    def halvings(self) -> int:
        """How often the epilogue halves a tile's columns, so that no registers are spilled."""
        config = self.config
        if config.bm * config.bn <= ELEMENTS_PER_THREAD * 32 * config.num_warps:
            return 0
        return 2 if self._computes_much else 1

    @cached_property
    def _computes_much(self) -> bool:
        """Whether the epilogue keeps more values of an element in registers than the element and one other."""
        dot, facts = dot_of(self.kernel), analyse(self.kernel)
        used = facts.needed((store.value for store in self.kernel.stores), stop=frozenset({dot}))
        values = [self.kernel.values[k] for k in used if k != dot]
        sides = [{loop.var for loop in loops} for loops in (self.rows, self.columns)]
        loads = sum(
            isinstance(v, Load) and not any(side.isdisjoint(v.index.variables) for side in sides)
            for v in values
        )
        return loads > 1 or any(isinstance(v, Compute) and v.op in EXPENSIVE for v in values)

    @cached_property
    def sides(self) -> tuple[int, int, int, int]:
        """Batches, rows, columns and depth; unknown sizes count as one."""
        loops = (self.batch, self.rows, self.columns, self.kernel.inner)
        batch, rows, columns, depth = (product(x.extent for x in part).as_int() for part in loops)
        return batch or 1, rows or 1, columns or 1, depth or 1


def _blocks(loops: tuple[Loop, ...], block: int) -> Expr:
    """Return how many blocks cover the points of ``loops``."""
    return floordiv(product(loop.extent for loop in loops) + (block - 1), block)


def tile_product(kernel: Kernel, config: KernelConfig | None = None) -> ProductTiling:
    """Return the tiling of a kernel with a ``dot``, with the given sizes or good sizes without a search.

    Raises:
        NotLowered: the operands are not matrices, or are loaded at computed or masked addresses.
    """
    left, right = factors(kernel)
    outer = frozenset(loop.var for loop in kernel.outer)
    left_loops, right_loops = (variables_of(kernel, k) & outer for k in (left, right))
    batch = tuple(loop for loop in kernel.outer if loop.var in left_loops & right_loops)
    rows = tuple(loop for loop in kernel.outer if loop.var not in right_loops)
    columns = tuple(loop for loop in kernel.outer if loop.var in right_loops - left_loops)
    if not (rows or columns) or {loop.var for loop in rows} - left_loops:
        raise NotLowered("a product of what are no matrices")
    if config is None:
        config = _good(ProductTiling(kernel, CONFIGS[0], batch, rows, columns))
    assert isinstance(config, ProductConfig)
    return ProductTiling(kernel, config, batch, rows, columns)


def dot_of(kernel: Kernel) -> int:
    """Return the position of the ``dot`` that the kernel computes."""
    return next(k for k, v in enumerate(kernel.values) if isinstance(v, Reduce) and v.op == "dot")


def factors(kernel: Kernel) -> tuple[int, int]:
    """Return the positions of the two values that the kernel's ``dot`` multiplies."""
    reduce = kernel.reduction(dot_of(kernel))
    multiplied = kernel.values[reduce.args[0]]
    if not isinstance(multiplied, Compute) or multiplied.op != "mul":
        raise NotLowered("a product whose factors are not apart")
    return multiplied.args[0], multiplied.args[1]


def variables_of(kernel: Kernel, position: int) -> frozenset[Var]:
    """Return all loop variables on which the factor at ``position`` depends."""
    variables: set[Var] = set()
    for value in (kernel.values[k] for k in analyse(kernel).needed((position,))):
        if isinstance(value, Check) or (isinstance(value, Load) and value.mask is not None):
            raise NotLowered("a factor that is read at computed places")
        if isinstance(value, Load):
            if any(v.kind == "value" for v in value.index.variables):
                raise NotLowered("a factor that is read at computed places")
            variables |= value.index.variables
        elif isinstance(value, IndexValue):
            variables |= value.expr.variables
    return frozenset(variables)


def _good(tiling: ProductTiling) -> ProductConfig:
    """Return the largest fitting tile that keeps all processors busy.

    If there is none, return the largest fitting tile for a large result. For a small result, return the smallest
    tile that has most of the depth in flight: few programs wait for memory, not for the matrix units.
    """
    batch, rows, columns, depth = tiling.sides
    fitting = fitting_configs(tiling)
    fitting = [c for c in fitting if _fits(c.bk, depth)] or fitting
    for config in fitting:
        if batch * -(-rows // config.bm) * -(-columns // config.bn) >= PROCESSORS:
            return config
    if rows * columns * batch >= 64 * 64 * PROCESSORS:
        return fitting[0]
    smallest = [c for c in reversed(fitting) if c.bm * c.bn == fitting[-1].bm * fitting[-1].bn]
    return max(smallest, key=lambda c: min(c.bk * (c.num_stages - 1), depth))


def fitting_configs(tiling: ProductTiling) -> list[ProductConfig]:
    """Return the configurations that leave at most half of the lanes of a single block idle."""
    _, rows, columns, _ = tiling.sides
    fitting = [c for c in CONFIGS if _fits(c.bm, rows) and _fits(c.bn, columns)]
    return fitting or [CONFIGS[-1]]


def _fits(block: int, size: int) -> bool:
    """Whether at most half of a block's lanes would be idle."""
    return block < 2 * max(size, MIN_SIDE)
