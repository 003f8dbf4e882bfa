"""Write scans of several values at once (``ir.kernel.Combine``): their functions, and the running values of a tile."""

from __future__ import annotations

import torch

from fxstack_inductor.codegen.triton import ops as triton_ops
from fxstack_inductor.ir.kernel import Combine, Compute, Kernel, Scan

LAST = "tl.sum(tl.where(tl.arange(0, RBLOCK)[None, :] == RBLOCK - 1, {0}, 0), 1)[:, None]"
"""The last column of a tile: the running value after the tile."""
FUNCTION = "KERNEL_COMBINE"
"""Begins the names of the functions, until the kernel has a name."""

Key = tuple[Combine, tuple[int, ...]]


class Combinations:
    """The scans by functions of one kernel. The parts of one scan share its text."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._names: dict[tuple[Combine, tuple[torch.dtype, ...]], str] = {}
        self._written: dict[Key, int] = {}
        """The position that names the running values of a scan in the present pass."""
        self._carried: set[Key] = set()

    def begin_pass(self) -> None:
        """Forget the running values of the previous pass over the elements."""
        self._written.clear()
        self._carried.clear()

    def carry(self, position: int, scan: Scan) -> list[str]:
        """Return the declarations of the running values before the first tile, whose value nothing reads."""
        key = _key(scan)
        if key in self._carried:
            return []
        self._carried.add(key)
        return [
            f"c{position}_{k} = tl.full([XBLOCK, 1], 0, {kind})" for k, kind in enumerate(self._kinds(scan))
        ]

    def scan(self, position: int, scan: Scan, *, carried: bool = False) -> list[str]:
        """Return the lines of the scan of a tile, and of its part at ``position``; ``carried``: after previous tiles."""
        key = _key(scan)
        lines = []
        if key not in self._written:
            self._written[key] = position
            lines = self._tile(position, scan)
            if carried:
                lines += self._joined(position, scan)
        name = f"s{self._written[key]}_{scan.part}"
        return [*lines, f"v{position} = {_from_state(name, scan.dtype)}"]

    def _tile(self, position: int, scan: Scan) -> list[str]:
        """Return the lines that scan one tile."""
        kinds = self._kinds(scan)
        tiles = [
            f"tl.broadcast_to(v{arg}, [XBLOCK, RBLOCK]).to({kind})"
            for arg, kind in zip(scan.args, kinds, strict=True)
        ]
        tuple_ = tiles[0] if len(tiles) == 1 else f"({', '.join(tiles)})"
        names = ", ".join(f"s{position}_{k}" for k in range(len(kinds)))
        return [f"{names} = tl.associative_scan({tuple_}, 1, {self._function(scan)})"]

    def _joined(self, position: int, scan: Scan) -> list[str]:
        """Return the lines that combine a tile with the tiles before it, and keep the last column."""
        kinds = self._kinds(scan)
        count = range(len(kinds))
        carried, tile, joined = (", ".join(f"{name}{position}_{k}" for k in count) for name in "csj")
        return [
            f"{joined} = {self._function(scan)}({carried}, {tile})",
            *(f"s{position}_{k} = tl.where(r >= RBLOCK, j{position}_{k}, s{position}_{k})" for k in count),
            *(
                f"c{position}_{k} = {LAST.format(f's{position}_{k}')}.to({kind})"
                for k, kind in enumerate(kinds)
            ),
        ]

    def _kinds(self, scan: Scan) -> list[str]:
        """Return the types of the running values; booleans run as int8."""
        return [_state(dtype) for dtype in self._dtypes(scan)]

    def _dtypes(self, scan: Scan) -> tuple[torch.dtype, ...]:
        return tuple(self._kernel.values[arg].dtype for arg in scan.args)

    def _function(self, scan: Scan) -> str:
        """Return the name of the function of a scan."""
        assert scan.combine is not None
        return self._names.setdefault((scan.combine, self._dtypes(scan)), f"{FUNCTION}{len(self._names)}")

    def functions(self, text: str, kernel: str) -> str:
        """Return the text of ``kernel`` behind the functions that its scans use."""
        made = (_text(name, combine, dtypes) for (combine, dtypes), name in self._names.items())
        return "".join([*made, text]).replace(FUNCTION, f"{kernel}_combine")


def _key(scan: Scan) -> Key:
    assert scan.combine is not None
    return scan.combine, scan.args


def _state(dtype: torch.dtype) -> str:
    return "tl.int8" if dtype is torch.bool else triton_ops.TYPES[dtype]


def _from_state(text: str, dtype: torch.dtype) -> str:
    return f"({text} != 0)" if dtype is torch.bool else text


def _text(name: str, combine: Combine, operands: tuple[torch.dtype, ...]) -> str:
    """Return the Triton function of ``combine``."""
    arguments = [f"a{k}" for k in range(2 * combine.count)]
    dtypes = [*operands, *operands, *(value.dtype for value in combine.values)]
    lines = [f"v{k} = {_from_state(f'a{k}', dtypes[k])}" for k in range(2 * combine.count)]
    for k, value in enumerate(combine.values, 2 * combine.count):
        if isinstance(value, Compute):
            kinds = [dtypes[arg] for arg in value.args]
            text = triton_ops.emit(value.op, [f"v{arg}" for arg in value.args], value.dtype, kinds)
        else:
            text = triton_ops.literal(value.text, value.dtype)
        lines.append(f"v{k} = {text}")
    results = [f"v{k}.to({_state(d)})" for k, d in zip(combine.results, operands, strict=True)]
    body = "\n    ".join([*lines, f"return {', '.join(results)}"])
    return f"@triton.jit\ndef {name}({', '.join(arguments)}):\n    {body}\n\n\n"
