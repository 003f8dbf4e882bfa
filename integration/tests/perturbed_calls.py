"""Calls of torch's operator database with one argument replaced by something that eager may refuse.

``perturbed(op)`` gives the calls, ``difference(call)`` compares what eager and compiled code raise, or return.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.testing._internal import common_utils

import fxstack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

common_utils.extract_test_fn = lambda: None  # who asks is found by reading the whole stack
INTEGERS = (-1, 0, 7, 1000, 1.5, "text", None)
FLOATS = (-1.0, 0.0, 2.0, float("nan"), float("inf"), "text", None)
FILLS = {"int": (-1, 0, 1000), "float": (-1.0, 2.0, float("nan")), "bool": (True, False)}
OPTIONS = {"optimization": 0, "use_cache": False}
RANDOM = ("rand", "empty", "dropout", "bernoulli", "multinomial", "normal", "cauchy", "exponential")
RANDOM += ("geometric", "uniform", "new_", "rrelu")


@dataclasses.dataclass(frozen=True)
class Call:
    """``function(*args, **kwargs)``; ``what`` says what was replaced."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    what: str


def kind(tensor: torch.Tensor) -> str:
    if tensor.dtype is torch.bool:
        return "bool"
    return "float" if tensor.is_floating_point() else "int"


def tensors_instead(x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of other dtypes, sizes and elements."""
    for dtype in (torch.int64, torch.float64, torch.complex64, torch.bool, torch.float16):
        if x.dtype is not dtype and not (x.is_complex() and not dtype.is_complex):
            yield f"as {dtype}", x.detach().to(dtype)
    for fill in () if x.is_complex() else FILLS[kind(x)]:
        yield f"full of {fill}", torch.full_like(x, fill)
    if x.dim() and x.shape[-1] > 1:
        yield "shorter", x.detach()[..., :-1].clone()
    if x.dim():
        yield "of fewer dimensions", x.detach()[0].clone() if x.shape[0] else x[:0].sum(0)
        yield "empty", x.detach()[:0].clone()
    yield "of more dimensions", x.detach()[None].clone()


def sequences_instead(value: Any) -> Iterator[tuple[str, Any]]:
    make = type(value) if type(value) in (tuple, list) else tuple
    for place, bad in itertools.product(range(min(len(value), 2)), (-1, 0, 100)):
        yield f"[{place}] = {bad}", make([*value[:place], bad, *value[place + 1 :]])
    yield "longer", make([*value, 1])
    if value:
        yield "shorter", make(value[:-1])


def instead(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield from tensors_instead(value) if value.layout is torch.strided else ()
    elif isinstance(value, bool):
        return
    elif isinstance(value, str):
        yield "= 'nonsense'", "nonsense"
    elif isinstance(value, (int, float)):
        for bad in INTEGERS if isinstance(value, int) else FLOATS:
            yield f"= {bad!r}", bad
    elif isinstance(value, (tuple, list)) and all(type(x) is int for x in value):
        yield from sequences_instead(value)


def perturbed(op: Any, samples: int = 1, dtypes: Any = (torch.float32, torch.int64)) -> Iterator[Call]:
    """The calls of ``op`` with one argument replaced."""
    for dtype in dtypes:
        if not op.supports_dtype(dtype, "cpu"):
            continue
        torch.manual_seed(0)
        drawn = list(itertools.islice(op.sample_inputs("cpu", dtype), 12))
        # Samples with most arguments say most.
        drawn.sort(key=lambda s: -len(s.args) - len(s.kwargs))
        for sample in drawn[:samples]:
            args = (sample.input, *sample.args)
            for place, value in enumerate(args):
                for what, other in instead(value):
                    changed = (*args[:place], other, *args[place + 1 :])
                    yield Call(op.op, changed, dict(sample.kwargs), f"{dtype} argument {place} {what}")
            for name, value in sample.kwargs.items():
                for what, other in instead(value):
                    kwargs = {**sample.kwargs, name: other}
                    yield Call(op.op, args, kwargs, f"{dtype} {name} {what}")


def outcome(run: Callable[..., Any], call: Call) -> tuple[str, Any]:
    torch.manual_seed(0)
    args, kwargs = copy.deepcopy((call.args, call.kwargs))
    try:
        return "returned", run(*args, **kwargs)
    except Exception as error:
        # What C++ adds on where an exception came from names addresses.
        return "raised", (type(error).__name__, str(error).partition("\nException raised from")[0])


def difference(call: Call, *, results: bool = False) -> str | None:
    """How compiled code differs from eager: in what is raised, or that anything is; ``results``: in what is returned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = outcome(call.function, call)
        if wanted[0] == "returned" and not results:
            return None
        fxstack.reset()

        def run(*args: Any, **kwargs: Any) -> Any:
            return call.function(*args, **kwargs)

        got = outcome(fxstack.compile(run, options=OPTIONS), call)
    if wanted[0] == "raised" or got[0] == "raised":
        return None if got == wanted else f"{short(got)}, eager: {short(wanted)}"
    try:
        torch.testing.assert_close(got[1], wanted[1], equal_nan=True, check_stride=False)
    except Exception as error:
        return str(error)[:200]
    return None


def short(found: tuple[str, Any]) -> str:
    return f"{found[0]} {str(found[1])[:160]}" if found[0] == "raised" else found[0]
