"""Write scans as C: running values along the inner loops, one per scan, or one per column."""

from __future__ import annotations

from collections.abc import Iterable

from fxstack_inductor.codegen.c import ops as c_ops
from fxstack_inductor.codegen.c.ops import REGISTER
from fxstack_inductor.codegen.c.reductions.combine import scan_arg_step, scan_start, scan_step
from fxstack_inductor.codegen.c.text import Names
from fxstack_inductor.ir.expr import product
from fxstack_inductor.ir.kernel import Combine, Compute, Kernel, Scan


class ScanText:
    """The C text of a kernel's scans. ``columns``: how many columns have running values; None: one row has one.

    With ``narrow``, values go to stack arrays, whose type is ``kind``, before other values use them.
    """

    def __init__(
        self, kernel: Kernel, names: Names, columns: int | None = None, *, narrow: bool = False
    ) -> None:
        self.kernel = kernel
        self.names = names
        self.narrow = narrow
        self.size = "" if columns is None else f"[{columns}]"
        self.at = "" if columns is None else "[j]"
        self.stop = "width"
        """How many elements of arrays of running values hold numbers."""
        self.declared: set[int] = set()
        self.first: dict[tuple[Combine, tuple[int, ...]], int] = {}
        """Scan of several values -> the position that names its running values in the present pass."""
        self.extremes: dict[int, int] = {}
        """Running extreme -> the running position of the same extreme in the present pass, which has the extreme beside it."""

    def declare(self, positions: Iterable[int]) -> list[str]:
        """Return declarations of the running values before the first element; a later pass restarts them."""
        lines: list[str] = []
        scans = {k: v for k in positions if isinstance(v := self.kernel.values[k], Scan)}
        self.first.clear()
        located = {
            (v.op, v.args[0]): k for k, v in scans.items() if v.combine is None and v.op.startswith("arg")
        }
        same = {k: located.get((f"arg{v.op}", v.args[0])) for k, v in scans.items() if v.combine is None}
        self.extremes = {k: at for k, at in same.items() if at is not None}
        for k, value in scans.items():
            lines += self._declare(k, value)
        return lines

    def _declare(self, k: int, value: Scan) -> list[str]:
        """Return the declarations and starts of the running values of one scan; its parts share them."""
        if value.combine is not None:
            if self.first.setdefault((value.combine, value.args), k) != k:
                return []
            kinds = [self._register(arg) for arg in value.args]
            parts = [(kind, f"state{k}_{j}", "0") for j, kind in enumerate(kinds)]
            parts.append(("bool", f"started{k}", "false"))
        elif value.op.startswith("arg"):
            dtype = self.kernel.values[value.args[0]].dtype
            best = (REGISTER[dtype], f"best{k}", scan_start(value.op, dtype))
            parts = [best, (self.kind(k), f"state{k}", "0")]
        elif k in self.extremes:
            return []
        else:
            parts = [(REGISTER[value.state], f"state{k}", scan_start(value.op, value.state))]
        is_declared = k in self.declared
        self.declared.add(k)
        declared = [] if is_declared else [f"{kind} {name}{self.size};" for kind, name, _ in parts]
        starts = " ".join(f"{name}{self.at} = {start};" for _, name, start in parts)
        each = f"for (int64_t j = 0; j < {self.stop}; j++) {{ {starts} }}" if self.size else starts
        return [*declared, each]

    def step(self, k: int) -> list[str]:
        """Return the statements that take in one element and name the value up to it."""
        value = self.kernel.values[k]
        assert isinstance(value, Scan)
        if value.combine is not None:
            return self._combined(k, value, value.combine)
        located = self.extremes.get(k, k)
        if value.op.startswith("arg") or located != k:
            return self._extreme(k, located)
        x, state = self.names.operand(value.args[0]), f"state{k}{self.at}"
        return [scan_step(value.op, value.state, state, x), f"const {self.kind(k)} v{k} = {state};"]

    def _extreme(self, k: int, located: int) -> list[str]:
        """Return the statements of step ``k`` of the scan ``located`` of positions, or of an extreme beside it.

        The first of both takes in the element.
        """
        scan = self.kernel.values[located]
        assert isinstance(scan, Scan)
        x, position = map(self.names.operand, scan.args)
        best, state, last = f"best{located}{self.at}", f"state{located}{self.at}", f"take{located}"
        both = (located, *(extreme for extreme, at in self.extremes.items() if at == located))
        lines = [scan_arg_step(scan.op, best, x, last)] if k == min(both) else []
        if k == located:
            return [
                *lines,
                f"{state} = {last} ? {position} : {state};",
                f"const {self.kind(k)} v{k} = {state};",
            ]
        return [*lines, f"const {self.kind(k)} v{k} = {best};"]

    def kind(self, k: int) -> str:
        """Return the C type of the value that a step names: positions in tiles have 32 bits if these are enough."""
        value = self.kernel.values[k]
        size = product(loop.extent for loop in self.kernel.inner).as_int()
        narrow = self.narrow and isinstance(value, Scan) and value.op.startswith("arg")
        return "int32_t" if narrow and size is not None and size < 2**31 else self._register(k)

    def _register(self, position: int) -> str:
        """Return the C type of a value."""
        return REGISTER[self.kernel.values[position].dtype]

    def _combined(self, k: int, scan: Scan, combine: Combine) -> list[str]:
        """Return the step of a scan of several values; only the first part of the scan takes in the element."""
        first = self.first[combine, scan.args]
        states = [f"state{first}_{j}{self.at}" for j in range(combine.count)]
        result = f"const {REGISTER[scan.dtype]} v{k} = {states[scan.part]};"
        if k != first:
            return [result]
        operands = [self.names.operand(arg) for arg in scan.args]
        texts = [*states, *operands]
        kinds = [self.kernel.values[arg].dtype for arg in scan.args] * 2
        lines = []
        for value in combine.values:
            if isinstance(value, Compute):
                args = [texts[arg] for arg in value.args]
                text = c_ops.emit(value.op, args, value.dtype, [kinds[arg] for arg in value.args])
                texts.append(f"w{len(texts)}")
                lines.append(f"const {REGISTER[value.dtype]} {texts[-1]} = {text};")
            else:
                texts.append(c_ops.literal(value.text, value.dtype))
            kinds.append(value.dtype)
        # All results are computed before the first state changes.
        results = [
            (self._register(arg), texts[at]) for arg, at in zip(scan.args, combine.results, strict=True)
        ]
        lines += [f"const {kind} next{j} = {text};" for j, (kind, text) in enumerate(results)]
        started = f"started{first}{self.at}"
        sets = [
            f"{state} = {started} ? next{j} : {x};"
            for j, (state, x) in enumerate(zip(states, operands, strict=True))
        ]
        return ["{", *lines, *sets, f"{started} = true;", "}", result]
