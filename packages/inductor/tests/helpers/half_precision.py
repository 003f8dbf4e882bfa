"""A family of functions of half precision whose results jump: the last digit of a value decides what they give."""

import itertools

import torch
from inductor_checks import FAST, trace

from fxstack_inductor import compile_graph, lower

VALUES = {
    "x / 7": lambda x: x / 7,
    "x * 0.3 + 0.1": lambda x: x * 0.3 + 0.1,
    "exp": lambda x: (x * 0.01).exp(),
    "sqrt": lambda x: x.abs().sqrt() * 3,
    "sigmoid": lambda x: x.sigmoid() * 5,
    "view": lambda x: (x / 3).t().reshape(-1, 4),
}
USES = {
    "eq": lambda y, s: y == s,
    "lt": lambda y, s: y < s,
    "ge number": lambda y, s: y >= s.flatten()[1].item(),
    "where": lambda y, s: torch.where(y > s, y, s),
    "floor": lambda y, s: y.floor(),
    "ceil": lambda y, s: (y * 8).ceil(),
    "round": lambda y, s: (y * 16).round(),
    "trunc": lambda y, s: (y * 4).trunc(),
    "sign": lambda y, s: (y - s).sign(),
    "remainder": lambda y, s: y % 0.25,
    "fmod": lambda y, s: torch.fmod(y, 0.25),
    "floor_divide": lambda y, s: y // 0.125,
    "div trunc": lambda y, s: torch.div(y, 0.125, rounding_mode="trunc"),
    "long": lambda y, s: (y * 32).long(),
    "uint8": lambda y, s: (y.abs() * 4).to(torch.uint8),
    "bool": lambda y, s: (y - s).bool(),
    "logical": lambda y, s: torch.logical_and(y - s, y),
    "isinf": lambda y, s: torch.isinf(y * 60000 * 1e3),
    "argmax": lambda y, s: y.argmax(-1),
    "max": lambda y, s: tuple((y.abs() + 64).max(-1)),
    "argmin": lambda y, s: (y + 100).argmin(0),
    "count": lambda y, s: (y == s).sum(),
}
FAMILY = list(itertools.product(VALUES, USES, (torch.bfloat16, torch.float16)))


def inputs(value, dtype):
    """Values, and what eager makes of them, half of it shifted by one digit."""
    x = (torch.arange(256).reshape(4, 64) - 100).to(dtype) / 8
    s = VALUES[value](x)
    shifted = torch.nextafter(s, torch.full_like(s, 1000))
    return x, torch.where(torch.arange(s.numel()).reshape(s.shape) % 2 == 0, s, shifted)


def function(value, use):
    return lambda x, s: USES[use](VALUES[value](x), s)


def compiled(fn, *given):
    return compile_graph(trace(fn, *given), given, FAST)


def difference(value, use, dtype):
    """What differs between eager and compiled code; None if nothing does."""
    fn, given = function(value, use), inputs(value, dtype)
    found, expected = compiled(fn, *given)(*given), fn(*given)
    pairs = zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True)
    wrong = [(a, b) for a, b in pairs if not torch.equal(a, b)]
    return wrong or None


def kernels(fn, *given):
    """The text of the kernels."""
    return lower(trace(fn, *given)).c
