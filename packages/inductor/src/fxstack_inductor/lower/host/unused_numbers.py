"""Remove comparisons of numbers that nothing reads: a size expression has replaced the number of most of them."""

from __future__ import annotations

import operator

import torch

from fxstack_inductor.ir.nodes import ExternCall
from fxstack_inductor.lower.node_queries import leaves
from fxstack_inductor.lower.program import HostCall, HostValue, Program

COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, torch.sym_not)
"""Functions of numbers that raise no error and have no effect."""


def drop_unused_comparisons(program: Program) -> None:
    """Remove the host calls that only compare numbers, and whose results nothing reads."""
    read = {value.name for value in program.outputs if isinstance(value, HostValue)}
    read |= {binding.source for binding in program.bindings}
    kept = []
    for step in reversed(program.steps):
        if isinstance(step, HostCall) and step.target in COMPARISONS and step.name not in read:
            continue
        if isinstance(step, (ExternCall, HostCall)):
            read |= {v.name for v in leaves((step.args, step.kwargs)) if isinstance(v, HostValue)}
        kept.append(step)
    program.steps[:] = reversed(kept)
