"""Numbers that a program takes out of tensors and computes with: expressions of ``s = t.item()``, beside eager.

``differences`` compiles one of ``EXPRESSIONS`` and calls it with numbers of both signs, zero, small, large and special ones.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch

import fxstack

EXPRESSIONS = (
    *(
        "s ** 2",
        "s ** 3",
        "s ** 2.0",
        "s ** -1",
        "s ** -3",
        "s ** 0.5",
        "pow(s, 2)",
        "(-s) ** 2",
        "(s - 1) ** 2",
        "s * s",
    ),
    *(
        "s * s * s",
        "(s + 1) * (s - 1)",
        "abs(s)",
        "-s",
        "+s",
        "abs(-s) + 1",
        "s - s",
        "s * 0",
        "s + 0.1 - s",
        "s * 0.1 * 10",
    ),
    *(
        "s / 3",
        "3 / s",
        "1 / (s * s)",
        "s / s",
        "s % 3",
        "7 % s",
        "s % -3",
        "s // 3",
        "7 // s",
        "s // 1",
        "(s * s) % 7",
    ),
    *(
        "s % 2.5",
        "s // 0.5",
        "divmod(s, 3)[0]",
        "divmod(s, 3)[1]",
        "s << 2",
        "s >> 1",
        "s & 3",
        "s | 4",
        "s ^ 5",
        "~s",
    ),
    *(
        "max(s, 2)",
        "min(s, 2)",
        "max(s, 2.5)",
        "max(-s, s)",
        "min(s, -1, 4)",
        "max(s, 0) ** 2",
        "max(-s, s) ** 3",
        "s + True",
    ),
    *(
        "int(s)",
        "float(s)",
        "int(s) ** 2",
        "float(s) ** 2",
        "int(s * 2)",
        "int(s / 2)",
        "float(s) * 3",
        "bool(s)",
        "not s",
    ),
    *(
        "round(s)",
        "round(s, 1)",
        "math.floor(s)",
        "math.ceil(s)",
        "math.trunc(s)",
        "math.sqrt(abs(s))",
        "math.sin(s)",
    ),
    *(
        "s > 2",
        "s == 3",
        "(s > 2) + 1",
        "s - 2**40",
        "s * 2**40",
        "s * 1.5 + 1",
        "sum([s, s, 1])",
        "s.is_integer()",
    ),
    *(
        "s if s > 0 else -s",
        "(s * 2 + 1) / (s * s + 1)",
        "1.0 - (s - 0.5) ** 2",
        "s ** 2 + s ** 3",
        "0.1 + s + 0.2",
    ),
)
NUMBERS: dict[torch.dtype, tuple[float, ...]] = {
    torch.int64: (3, -3, 0, 7, 2**31, 2**40, -(2**40), 2**62, 2**63 - 1, -(2**63)),
    torch.float64: (1.5, -1.5, 0.0, -0.0, 0.3, 3.0, 1e30, -1e30, 1e300, math.inf, -math.inf, math.nan),
    torch.float32: (0.1, -2.5, 1e20),
    torch.int8: (5, -128),
}
OPTIONS = {"capture_scalar_outputs": True}
CASES = [(expression, dtype) for expression in EXPRESSIONS for dtype in NUMBERS]
"""An expression, and the dtype of the tensor whose number it is of."""


def differences(expression: str, dtype: torch.dtype, backend: str = "aot_eager") -> str | None:
    """Return the first difference between eager and the compiled expression; None if there is none."""
    space: dict[str, Any] = {"math": math}
    exec(f"def program(x, t):\n    s = t.item()\n    v = {expression}\n    return x + v, x * v, v", space)
    program = space["program"]
    compiled = fxstack.compile(program, backend=backend, options=OPTIONS)
    for number in NUMBERS[dtype]:
        for kind in (torch.float32, torch.int64):
            x, t = torch.arange(4).to(kind), torch.tensor(number, dtype=dtype)
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                got = _outcome(compiled, x, t)
            wanted = _outcome(program, x, t)
            if not _same(got, wanted):
                return f"of {number} beside {kind}: {got} is not {wanted}"
            defects = [str(w.message) for w in warned if "defect" in str(w.message)]
            if defects:
                return f"of {number} beside {kind}: {defects[0]}"
    return None


def _outcome(function: Any, *args: torch.Tensor) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error).partition("\n")[0]


def _same(got: Any, wanted: Any) -> bool:
    if type(got) is not type(wanted):
        return False
    if isinstance(wanted, tuple):
        return len(got) == len(wanted) and all(map(_same, got, wanted))
    if isinstance(wanted, torch.Tensor):
        return got.dtype == wanted.dtype and torch.allclose(got, wanted, rtol=1e-6, atol=0, equal_nan=True)
    return bool(got == wanted) or (got != got and wanted != wanted)
