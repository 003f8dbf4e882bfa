"""Torch's database of higher-order operators (``hop_db``): each sample in eager and compiled, values and gradients."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from beside_eager import attempt
from torch.testing._internal.hop_db import hop_db
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

import fxstack

OPERATORS = {f"{op.name} {op.variant_test_name}".strip(): op for op in hop_db}


@dataclass(frozen=True, slots=True)
class Outcome:
    """``difference`` is None where compiled and eager agree; else what differs."""

    difference: str | None
    graphs: int
    breaks: tuple[str, ...]
    eager_raises: bool = False


REFUSALS = ("UncapturedHigherOrderOpError", "Unsupported")
"""What torch's own compiler, which eager control flow calls, raises where it cannot capture a function."""


def samples(name: str, dtype: torch.dtype, *, gradients: bool) -> list[Any]:
    """The inputs of an operator on CPU, also of those that torch itself tests on GPUs only."""
    op = OPERATORS[name]
    wanted = gradients and op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    torch.manual_seed(0)
    return list(op.sample_inputs_func(op, "cpu", dtype, wanted))


def check(name: str, sample: Any, **options: Any) -> Outcome:
    """Run one sample both ways; an exception of the program must be the same one."""
    op = OPERATORS[name].op
    fn = fxstack.compile(lambda *args, **kwargs: op(*args, **kwargs), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, found = (_observed(f, sample) for f in (op, fn))
    log = fxstack.compile_log(fn)
    breaks = tuple(record.reason.id for record in log.breaks)
    raises = expected[0] == "raised"
    refused = raises and expected[1] in REFUSALS
    difference = None if refused else _difference(found, expected)
    return Outcome(difference, log.graph_count, breaks, raises)


def _observed(fn: Any, sample: Any) -> Any:
    def leaf(x: Any) -> Any:
        return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x

    args = tree_map(leaf, (sample.input, *sample.args))
    kwargs = copy.copy(sample.kwargs)
    torch.manual_seed(1)
    result = attempt(fn, *args, **kwargs)
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str):
        return ("raised", *result)
    outputs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    inputs = [x for x in tree_leaves(args) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not outputs:
        return result, None
    total = sum(x.float().sum() for x in outputs)
    taken = attempt(torch.autograd.grad, total, inputs, allow_unused=True)
    return result, taken


def _difference(found: Any, expected: Any) -> str | None:
    (mine, spec), (theirs, wanted) = tree_flatten(found), tree_flatten(expected)
    if spec != wanted:
        return f"structure {spec} is not {wanted}" if len(str(found)) > 200 else f"{found} is not {expected}"
    for index, (x, y) in enumerate(zip(mine, theirs, strict=True)):
        text = _leaf_difference(x, y)
        if text:
            return f"result {index}: {text}"
    return None


def _leaf_difference(x: Any, y: Any) -> str | None:
    if not isinstance(y, torch.Tensor):
        return None if x == y else f"{x!r} is not {y!r}"
    facts = [(t.dtype, t.shape, t.stride(), t.requires_grad) for t in (x, y)]
    if facts[0] != facts[1]:
        return f"{facts[0]} is not {facts[1]}"
    try:
        torch.testing.assert_close(x, y, equal_nan=True)
    except AssertionError as error:
        return str(error).split("\n", 1)[0]
    return None
