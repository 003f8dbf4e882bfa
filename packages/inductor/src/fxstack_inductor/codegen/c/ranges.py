"""C loops over the loops of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import ONE, Expr
from fxstack_inductor.ir.kernel import Loop


@dataclass(frozen=True, slots=True)
class Range:
    """A C loop over ``loop``: the variable ``name`` increases by ``step``, which is ``stride`` points."""

    name: str
    loop: Loop
    step: str = "1"
    stride: Expr = ONE

    @property
    def extent(self) -> str:
        return c_index(self.loop.extent)

    @property
    def count(self) -> str:
        return self.extent if self.step == "1" else f"({self.extent} + {self.step} - 1) / {self.step}"

    def text(self) -> str:
        return for_head(self.name, "0", self.extent, self.step)


def for_head(name: str, start: str, stop: str, step: str = "1") -> str:
    """Return the head of a C loop."""
    move = f"{name}++" if step == "1" else f"{name} += {step}"
    return f"for (int64_t {name} = {start}; {name} < {stop}; {move})"


def ranges(loops: Sequence[Loop]) -> list[Range]:
    return [Range(loop.var.name, loop) for loop in loops]
