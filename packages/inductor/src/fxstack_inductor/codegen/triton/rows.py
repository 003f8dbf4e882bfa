"""Write kernels over rows that add up columns (``schedule.column_sums``): a program takes its rows one tile after the other."""

from __future__ import annotations

from fxstack_inductor.codegen.index_text import triton_index
from fxstack_inductor.codegen.triton import ops as triton_ops
from fxstack_inductor.codegen.triton.writer import KernelWriter
from fxstack_inductor.ir.kernel import Store
from fxstack_inductor.tiling.tiles import extent


class RowsWriter(KernelWriter):
    """Writes one function. The running tile of the sum over columns number ``n`` is ``total{n}``."""

    def function(self, name: str) -> str:
        """Return the Triton function ``name``."""
        sums = [store for store in self.kernel.stores if store.op]
        others = [store for store in self.kernel.stores if not store.op]
        self.line(f"rnumel = {triton_index(extent(self.kernel.inner))}")
        self._inner_axis("0")
        for number, store in enumerate(sums):
            kind = triton_ops.TYPES[self.kernel.values[store.value].dtype]
            self.line(f"total{number} = tl.zeros([XBLOCK, RBLOCK], {kind})")
        tiles = self.kernel.rows // self.constants["XBLOCK"]
        with self.block(f"for tile in range({tiles}):"):
            self._outer_axis(f"{self.program} * {tiles} + tile")
            self._whole_tiles(others)
            for number, store in enumerate(sums):
                self.line(f"total{number} += {self._masked(store.value, 'sum')}")
        for number, store in enumerate(sums):
            self._total(number, store)
        return self.definition(name, ("XBLOCK", "RBLOCK"))

    def _total(self, number: int, store: Store) -> None:
        """Write the store of the sums of the program's rows."""
        place = f"({self.program}).to({self._integer()}) * rnumel + r"
        value = self._stored(f"tl.sum(total{number}, 0)[None, :]", store.buffer)
        self.line(f"tl.store({self.pointers[store.buffer]} + ({place}), {value}, mask=rmask)")
