"""The names of the host program: Python identifiers for nodes, and the names that the program uses for itself."""

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
    }
)
RESERVED = re.compile(
    r"(inputs|kernel_\d+|kernel_\d+_on\d+|record_.*|c\d+_.*|t\d+_.*|t_.*|p_.*|stream\d+|current_stream|on_device|aligned|raise_launch_error"
    r"|take|give|call|bernoulli|block|threads|error|error_address|out_of_range|\w*_fx)$"
)
"""Names that the host program uses for itself."""


@lru_cache(maxsize=1 << 14)  # called at each use of a node
def identifier(name: str) -> str:
    """Return a Python identifier for a node's name that cannot clash with the program's own names."""
    plain = re.sub(r"\W", "_", name)
    clashes = RESERVED.match(plain) or keyword.iskeyword(plain) or plain in HELPERS
    return f"{plain}_fx" if clashes else plain


def shape_text(shape: Iterable[Expr]) -> str:
    """Return the Python text of sizes."""
    return f"({''.join(f'{size}, ' for size in shape)})"


def symbols_of(exprs: Iterable[Expr]) -> list[str]:
    """Return the names of the variables in ``exprs``."""
    return sorted({v.name for e in exprs for v in e.variables})
