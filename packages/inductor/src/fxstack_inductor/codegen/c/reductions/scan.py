"""Write scans as C: running values along the inner loops, one per scan, or one per column."""

from __future__ import annotations

from collections.abc import Iterable

from fxstack_inductor.codegen.c.ops import REGISTER
from fxstack_inductor.codegen.c.reductions.combine import scan_arg_step, scan_start, scan_step
from fxstack_inductor.codegen.c.text import Names
from fxstack_inductor.ir.kernel import Kernel, Scan


class ScanText:
    """The C text of a kernel's scans. ``columns``: how many columns have running values; None: one row has one."""

    def __init__(self, kernel: Kernel, names: Names, columns: int | None = None) -> None:
        self.kernel = kernel
        self.names = names
        self.size = "" if columns is None else f"[{columns}]"
        self.at = "" if columns is None else "[j]"
        self.declared: set[int] = set()

    def declare(self, positions: Iterable[int]) -> list[str]:
        """Return declarations of the running values before the first element; a later pass restarts them."""
        lines: list[str] = []
        for k in positions:
            value = self.kernel.values[k]
            if isinstance(value, Scan):
                lines += self._declare(k, value)
        return lines

    def _declare(self, k: int, value: Scan) -> list[str]:
        """Return the declarations and starts of the running values of one scan."""
        if value.op.startswith("arg"):
            best = REGISTER[self.kernel.values[value.args[0]].dtype]
            parts = [(best, f"best{k}", "0"), ("int64_t", f"state{k}", "-1")]
        else:
            parts = [(REGISTER[value.state], f"state{k}", scan_start(value.op, value.state))]
        is_declared = k in self.declared
        self.declared.add(k)
        declared = [] if is_declared else [f"{kind} {name}{self.size};" for kind, name, _ in parts]
        starts = " ".join(f"{name}{self.at} = {start};" for _, name, start in parts)
        each = f"for (int64_t j = 0; j < width; j++) {{ {starts} }}" if self.size else starts
        return [*declared, each]

    def step(self, k: int) -> list[str]:
        """Return the statements that take in one element and name the value up to it."""
        value = self.kernel.values[k]
        assert isinstance(value, Scan)
        operands = [self.names.operand(arg) for arg in value.args]
        state = f"state{k}{self.at}"
        if value.op.startswith("arg"):
            text = scan_arg_step(value.op, f"best{k}{self.at}", state, *operands, last=f"take{k}")
        else:
            text = scan_step(value.op, value.state, state, operands[0])
        return [text, f"const {REGISTER[value.dtype]} v{k} = {state};"]
