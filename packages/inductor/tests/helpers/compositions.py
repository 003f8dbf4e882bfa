"""Functions of functions at special values: what a C compiler makes of ``f(g(x))`` must be what eager computes.

Compilers know identities of pairs of functions (``sin(atan(x))`` by a square root), which do not hold for NaN and infinities.
Where ``g(x)`` is NaN, infinite or zero, the result must be eager's: NaN, the infinity, and the sign of a zero. Elsewhere
vector math may be some units in the last place off, which ``f`` may enlarge: a result is right if it lies between the
values of ``f`` a few places around ``g(x)``.
"""

import math

import torch
from inductor_checks import trace
from torch.nn import functional as F

import fxstack_inductor as fi

INNER = {
    **{
        name: getattr(torch, name)
        for name in (
            "abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad erf erfc erfinv exp exp2 expm1 floor frac i0 "
            "lgamma log log10 log1p log2 logit nan_to_num neg reciprocal round rsqrt sigmoid sign sin sinc sinh sqrt "
            "square tan tanh trunc"
        ).split()
    },
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "plus one": lambda x: x + 1,
    "half": lambda x: x * 0.5,
    "over zero": lambda x: x / 0.0,
    "times zero": lambda x: x * 0.0,
    "minus itself": lambda x: x - x,
    "over itself": lambda x: x / x,
    "cube": lambda x: x**3,
    "power of a half": lambda x: x**0.5,
    "power of minus one": lambda x: x**-1.0,
    "power of two": lambda x: 2.0**x,
    "remainder": lambda x: torch.remainder(x, 3.0),
    "fmod": lambda x: torch.fmod(x, -3.0),
    "larger": lambda x: torch.maximum(x, -x),
    "fmin": lambda x: torch.fmin(x, x * float("nan")),
    "hypot": lambda x: torch.hypot(x, x),
    "angle": lambda x: torch.atan2(x, -x),
    "sign of": lambda x: torch.copysign(x * x, x),
}
SPECIAL = (
    *(0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, math.pi / 2, math.pi, 10.0, 88.0, 89.0, 127.5, 709.0, 1e5),
    *(1e-3, 1e-8, 1e-30, 1e-38, 1e-40, 1e-45, 1e30, 3e38, math.inf, math.nan, 16777217.0, 0.99999994),
)
PLACES = range(-12, 13)
CLOSE = {torch.float32: 3e-5, torch.float64: 1e-12}


def values(dtype, length):
    """The special values and their negatives, as often as they fit."""
    both = [sign * x for x in SPECIAL for sign in (1, -1)]
    return torch.tensor(both * (1 + length // len(both)), dtype=dtype)[:length]


def wrong(got, f, inner):
    """A mask of the elements of ``got`` that are not ``f(inner)``."""
    want, tolerance = f(inner), CLOSE[got.dtype]
    exact = ~inner.isfinite() | (inner == 0)
    strict = (got.isnan() == want.isnan()) & (
        want.isnan()
        | ((got == want) & ((want != 0) | (got.signbit() == want.signbit())))
        | ((want != 0) & torch.isclose(got, want, rtol=tolerance, atol=0))
    )
    around, place = [want], inner
    for towards in (math.inf, -math.inf):
        place = inner
        for _ in PLACES[: len(PLACES) // 2]:
            place = torch.nextafter(place, torch.full_like(place, towards))
            around.append(f(place))
    near = torch.stack(around).double()
    low, high = (near.nan_to_num(nan=s * math.inf, posinf=math.inf, neginf=-math.inf) for s in (1, -1))
    low, high, result = low.min(0).values, high.max(0).values, got.double()
    room = tolerance * torch.maximum(low.abs(), high.abs()).nan_to_num(posinf=0.0) + 1e-44
    loose = ((result >= low - room) & (result <= high + room)) | (got.isnan() & near.isnan().any(0))
    return torch.where(exact, ~strict, ~(strict | loose))


def alone(f, x, got):
    """Whether ``got`` is what eager computes of one element; its vectors have other answers for some (``gelu`` of infinity)."""
    return torch.equal(f(x.reshape(1)).nan_to_num(), got.reshape(1).nan_to_num())


def differences(name, dtype, options, outer=INNER, lengths=(1, 57, 256)):
    """Texts of what differs in ``f(g(x))`` for the inner function ``name`` and every ``f`` of ``outer``."""
    g, found = INNER[name], []

    def program(x):
        inner = g(x)
        return (inner, *(f(inner) for f in outer.values()))

    for length in lengths:
        x = values(dtype, length)
        compiled = fi.compile_graph(trace(program, x), [x], options)
        inner, *results = compiled(x)
        for (title, f), got in zip(outer.items(), results):
            # f of what was computed here: how far that is from eager's is the business of vector_math.py
            bad = wrong(got, f, inner).nonzero().flatten().tolist()
            for k in [k for k in bad if not alone(f, inner[k], got[k])][:1]:
                at = f"x = {x[k].item()!r}, {name} = {inner[k].item()!r}"
                found.append(f"{title}({name}) {dtype} of {length}: {got[k].item()!r} at {at}")
        bad = wrong(inner, g, x).nonzero().flatten().tolist()
        for k in [k for k in bad if not alone(g, x[k], inner[k])][:1]:
            found.append(f"{name} {dtype} of {length}: {inner[k].item()!r} at {x[k].item()!r}")
    return found
