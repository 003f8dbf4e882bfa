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
        """The number of points of the loop, as C text."""
        return c_index(self.loop.extent)

    @property
    def count(self) -> str:
        """The number of steps, as C text."""
        return self.extent if self.step == "1" else f"({self.extent} + {self.step} - 1) / {self.step}"

    def text(self) -> str:
        return for_head(self.name, "0", self.extent, self.step)


def for_head(name: str, start: str, stop: str, step: str = "1") -> str:
    """Return the head of a C loop, for example ``for (int64_t i = 0; i < 8; i++)``."""
    move = f"{name}++" if step == "1" else f"{name} += {step}"
    return f"for (int64_t {name} = {start}; {name} < {stop}; {move})"


def ranges(loops: Sequence[Loop]) -> list[Range]:
    """Return C loops over ``loops``, one point per step."""
    return [Range(loop.var.name, loop) for loop in loops]
