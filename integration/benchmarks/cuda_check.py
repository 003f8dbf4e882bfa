"""Check the bytes that ``cuda_bytes`` finds against those computed by hand, for simple kernels; needs Triton and no GPU.

python cuda_check.py
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import cuda_bytes
import cuda_ttir
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

if TYPE_CHECKING:
    from collections.abc import Callable

TARGET = GPUTarget("cuda", 90, 32)


def copy(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n), i < n)


def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


def bias(x, b, out, n, width, BLOCK: tl.constexpr):  # noqa: PLR0917
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(b + i % width, i < n), i < n)


def sum_rows(x, out, width, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for at in range(0, width, BLOCK):
        total += tl.load(x + row * width + at + i, at + i < width, 0.0)
    tl.store(out + row, tl.sum(total, 0))


def sum_columns(x, out, rows, width, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(rows):
        total += tl.load(x + row * width + column, column < width, 0.0)
    tl.store(out + column, total, column < width)


def softmax(x, out, width, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    most = tl.full([BLOCK], -1e30, tl.float32)
    for at in range(0, width, BLOCK):
        most = tl.maximum(most, tl.load(x + row * width + at + i, at + i < width, -1e30))
    top, total = tl.max(most, 0), tl.zeros([BLOCK], tl.float32)
    for at in range(0, width, BLOCK):
        total += tl.exp(tl.load(x + row * width + at + i, at + i < width, -1e30) - top)
    for at in range(0, width, BLOCK):
        value = tl.exp(tl.load(x + row * width + at + i, at + i < width, 0.0) - top) / tl.sum(total, 0)
        tl.store(out + row * width + at + i, value, at + i < width)


def transpose_add(x, y, out, rows, width, BLOCK: tl.constexpr):  # noqa: PLR0917
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (i < rows) & (j < width)
    value = tl.load(x + i * width + j, inside) + tl.load(y + j * rows + i, inside)
    tl.store(out + i * width + j, value, inside)


def gather(table, index, out, width, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    at = tl.load(index + row)
    tl.store(out + row * width + i, tl.load(table + at * width + i, i < width), i < width)


def layer_norm(x, w, b, out, width, BLOCK: tl.constexpr):  # noqa: PLR0917
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * width + i, i < width, 0.0)
    value = value - tl.sum(value, 0) / width
    value = value * tl.rsqrt(tl.sum(value * value, 0) / width) * tl.load(w + i, i < width) + tl.load(
        b + i, i < width
    )
    tl.store(out + row * width + i, value, i < width)


def product(a, b, out, n, k, BLOCK: tl.constexpr):  # noqa: PLR0917
    i, j, r = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK, tl.arange(0, BLOCK)
    left, right = a + (i + r[:, None]) * k + r[None, :], b + r[:, None] * n + j + r[None, :]
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for _ in range(0, k, BLOCK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BLOCK
        right += BLOCK * n
    tl.store(out + (i + r[:, None]) * n + j + r[None, :], total)


def uneven(x, out, n, BLOCK: tl.constexpr):
    begin = tl.program_id(0) * tl.cdiv(n, tl.num_programs(0))
    end = tl.minimum(begin + tl.cdiv(n, tl.num_programs(0)), n)
    for at in range(begin, end, BLOCK):
        i = at + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, i < end), i < end)


def choice(a, b, c, out, n, BLOCK: tl.constexpr):  # noqa: PLR0917
    program = tl.program_id(0)
    count = tl.cdiv(n, BLOCK)
    if program < count:
        x = a
    elif program < 2 * count:
        x = b
    else:
        x = c
    i = program % count * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + program * BLOCK + tl.arange(0, BLOCK), tl.load(x + i, i < n), i < n)


@dataclass(frozen=True)
class Check:
    """``read`` and ``written`` are computed by hand. Parameters that are numbers are passed as they are, others are addresses."""

    kernel: Callable[..., None]
    signature: str
    """``f``, ``h``, ``l``: addresses of float32, bfloat16, int64; ``i`` an integer."""
    grid: tuple[int, int, int]
    numbers: tuple[int, ...]
    block: int
    read: int
    written: int


def checks() -> dict[str, Check]:
    n, rows, width = 100_000, 300, 700
    whole, large = rows * width, 1 << 24
    made = [
        Check(copy, "hhi", (98, 1, 1), (n,), 1024, 2 * n, 2 * n),
        Check(add, "fffi", (98, 1, 1), (n,), 1024, 8 * n, 4 * n),
        Check(bias, "fffii", (206, 1, 1), (whole, width), 1024, 4 * (whole + width), 4 * whole),
        Check(sum_rows, "ffi", (rows, 1, 1), (width,), 256, 4 * whole, 4 * rows),
        Check(sum_columns, "ffii", (6, 1, 1), (rows, width), 128, 4 * whole, 4 * width),
        Check(softmax, "ffi", (rows, 1, 1), (width,), 256, 4 * whole, 4 * whole),
        Check(transpose_add, "fffii", (10, 22, 1), (rows, width), 32, 8 * whole, 4 * whole),
        Check(gather, "flfi", (rows, 1, 1), (width,), 1024, 4 * whole + 8 * rows, 4 * whole),
        Check(layer_norm, "ffffi", (rows, 1, 1), (width,), 1024, 4 * (whole + 2 * width), 4 * whole),
        Check(product, "hhfii", (4, 8, 1), (512, 128), 64, 2 * (256 * 128 + 128 * 512), 4 * 256 * 512),
        Check(uneven, "ffi", (7, 1, 1), (n,), 1024, 4 * n, 4 * n),
        Check(choice, "ffffi", (3 * 40, 1, 1), (40_000,), 1024, 480_000, 480_000),
    ]
    found = {c.kernel.__name__: c for c in made}
    found["choice, sampled"] = Check(
        choice, "ffffi", (3 * large // 128, 1, 1), (large,), 128, 12 * large, 12 * large
    )
    found["copy, sampled"] = Check(copy, "ffi", (large // 1024, 1, 1), (large,), 1024, 4 * large, 4 * large)
    found["softmax, sampled"] = Check(softmax, "ffi", (8192, 1, 1), (4096,), 1024, 1 << 27, 1 << 27)
    found["bias, sampled"] = Check(
        bias, "fffii", (large // 1024, 1, 1), (large, 4096), 1024, 4 * (large + 4096), 4 * large
    )
    return found


def text_of(check: Check, folder: Path) -> str:
    """The text of a check's kernel for an H100."""
    kinds = {"f": "*fp32", "h": "*bf16", "l": "*i64", "i": "i32"}
    function = triton.JITFunction(check.kernel)
    names = function.arg_names
    signature = {
        **{name: kinds[k] for name, k in zip(names, check.signature, strict=False)},
        "BLOCK": "constexpr",
    }
    source = ASTSource(fn=function, signature=signature, constexprs={(names.index("BLOCK"),): check.block})
    triton.knobs.cache.dir = str(folder)
    return triton.compile(source, target=TARGET, options={"enable_fp_fusion": False}).asm["ttir"]


def found_by(check: Check, folder: Path) -> cuda_bytes.Traffic:
    numbers = iter(check.numbers)
    arguments: list[Any] = [
        next(numbers) if k == "i" else (1 + p) << 32 for p, k in enumerate(check.signature)
    ]
    return cuda_bytes.traffic(cuda_ttir.read(text_of(check, folder)), check.grid, arguments)


def main() -> int:
    wrong = 0
    print("| kernel | read | by hand | written | by hand |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, check in checks().items():
            found = found_by(check, Path(folder))
            near = 0.02 if found.sampled else 0.0
            pairs = ((found.read, check.read), (found.written, check.written))
            same = all(abs(a - b) <= near * b for a, b in pairs)
            wrong += not same
            note = "" if same else " **wrong**"
            print(
                f"| {name} | {found.read:.0f} | {check.read} | {found.written:.0f} | {check.written} |{note}"
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
