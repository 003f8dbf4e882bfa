"""Names in the host program: identifiers for nodes, names of its own, and torch's integer codes of dtypes."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from functools import lru_cache
from types import MappingProxyType

import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.runtime.layout import as_declared, as_planned, assert_numbers, restride
from fxstack_inductor.runtime.nested import OPERATORS

HELPERS = MappingProxyType(
    {
        "torch": torch,
        "as_declared": as_declared,
        "assert_numbers": assert_numbers,
        "as_planned": as_planned,
        "restride": restride,
        "empty_strided": torch.empty_strided,
        "as_strided": torch.as_strided,
        "get_num_threads": torch.get_num_threads,
        "below_autograd": torch_compat.AutoDispatchBelowAutograd,
        **{f"run_{name}": function for name, function in OPERATORS.items()},
    }
)
"""Objects in the namespace of every host program. ``run_scan`` is the operator ``scan`` on compiled functions."""
RESERVED = re.compile(
    r"(inputs|kernel_\d+|kernel_\d+_on\d+|record_.*|c\d+_.*|t\d+_.*|t_.*|p_.*|stream\d+|current_stream|on_device|aligned|raise_launch_error"
    r"|take|take_nested_\d+|nested_\d+|give|call|bernoulli|block|threads|error|error_address|out_of_range|\w*_fx)$"
)
"""Names that the host program uses for itself."""


@lru_cache(maxsize=1 << 14)  # called at each use of a node
def identifier(name: str) -> str:
    """Return a Python identifier for a node's name that cannot clash with the program's own names."""
    plain = re.sub(r"\W", "_", name)
    clashes = RESERVED.match(plain) or keyword.iskeyword(plain) or plain in HELPERS
    return f"{plain}_fx" if clashes else plain


def shape_text(shape: Iterable[Expr]) -> str:
    """Return sizes as the text of a Python tuple, for example ``(2, s0, )``."""
    return f"({''.join(f'{size}, ' for size in shape)})"


def symbols_of(exprs: Iterable[Expr]) -> list[str]:
    """Return the names of the variables in ``exprs``."""
    return sorted({v.name for e in exprs for v in e.variables})


DTYPE_CODES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.float8_e5m2fnuz: 25,
    torch.float8_e4m3fnuz: 26,
    torch.float8_e8m0fnu: 44,
}
"""The numbers of c10::ScalarType, which are part of torch's ABI."""
