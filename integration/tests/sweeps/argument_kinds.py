"""Functions called with one kind of argument after another, in two orders, compiled and plain.

    python integration/tests/sweeps/argument_kinds.py [eager|aot_eager|inductor]

Every function meets every value under one compiled function, whose guards have to tell them apart. Values, dtypes, strides and
exceptions are compared. Prints each difference, and totals.
"""

import collections
import dataclasses
import enum
import os
import random
import re
import sys
import warnings

import numpy as np
import torch
from torch import nn

import fxstack

os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")  # a defect is no fallback here


@dataclasses.dataclass
class Record:
    number: int = 3


class Letter(enum.Enum):
    A = 1
    B = 2


Pair = collections.namedtuple("Pair", "x y")  # noqa: PYI024 - as programs do
KEPT = {}
VALUES = [
    *(1, 2, 0, -3, 2.5, float("nan"), -0.0, True, None, "a", "bb", 1 + 2j, 10**20, -(10**20), b"x"),
    *((1, 2), [1, 2], [1, 2, 3], {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": [1]}, {1, 2}),
    *(frozenset([1]), range(3), slice(1, 2), ..., torch.float32, len, lambda v: v + 1, int),
    *(Record(), collections.OrderedDict(a=1), Pair(1, 2), Letter.A, torch.Size([2, 3])),
    *(torch.device("cpu"), nn.Linear(3, 3), nn.Parameter(torch.ones(3)), np.float64(2), np.ones(3)),
    *(torch.ones(3), torch.ones(3).double(), torch.ones(2, 3).t(), torch.ones(3).half()),
    *(torch.ones(3, requires_grad=True), torch.tensor(2), torch.tensor([True, False, True])),
    *(torch.ones(0), torch.ones(1), torch.ones(3).to(torch.complex64), torch.arange(3)),
]


def branches(x, v):
    if v is None:
        return x * 2
    if isinstance(v, str):
        return x * 3
    return x + len(v) if isinstance(v, (list, tuple, dict)) else x - 1


def matches(x, v):
    match v:
        case int():
            return x + v
        case [first, *_]:
            return x * first
        case {"a": found}:
            return x * (found if isinstance(found, int) else 2)
        case None:
            return x
        case str(text):
            return x * len(text)
        case _:
            return x - 1


def keywords(x, v):
    args = v if isinstance(v, (list, tuple)) else ()
    named = v if isinstance(v, dict) else {}
    return (lambda *a, **k: (x + len(a) + len(k), list(k)))(*args, **named)


def stores(x, v):
    KEPT["k"] = v
    return x + 1, KEPT["k"] is v


def describes(x, v):
    kinds = isinstance(v, (int, float)), callable(v), hasattr(v, "__len__")
    truth = 0 if isinstance(v, (torch.Tensor, np.ndarray)) else bool(v)
    return x + 1, type(v).__name__, kinds, truth


FUNCTIONS = {
    "branches": branches,
    "matches": matches,
    "keywords": keywords,
    "stores": stores,
    "describes": describes,
    "times": lambda x, v: x * v,
    "plus": lambda x, v: (v + x,),
    "in place": lambda x, v: (x.clone().add_(v),),
    "numbers": lambda x, v: (x * abs(v), -v, v**2, v > 0),
    "equal": lambda x, v: (x + 1, v == 1, v != "a", 1 == v),
    "items": lambda x, v: [x * i for i in v],
    "first": lambda x, v: (x, v[0]),
    "index": lambda x, v: x[v],
    "sum": lambda x, v: (sum(v) if isinstance(v, (list, tuple, range)) else 0) + x,
    "view": lambda x, v: x.view(v) if isinstance(v, (int, tuple, list)) else x,
    "text": lambda x, v: (x, "" if callable(v) else f"{v}"[:40], str(type(v))),
    "attributes": lambda x, v: (x * v.shape[0], v.dtype),
    "tensor": lambda x, v: torch.as_tensor(v) + x,
    "call": lambda x, v: v(x),
    "cat": lambda x, v: torch.cat([x, v]),
    "where": lambda x, v: torch.where(x > 0, x, v),
}


def shown(value):
    """Text that is equal where values are, up to rounding and addresses."""
    if isinstance(value, torch.Tensor):
        made = value.dtype, tuple(value.shape), value.stride(), value.requires_grad, value.tolist()
        return f"{type(value).__name__} {made}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} {[shown(item) for item in value]}"
    return repr(value)


def outcome(fn, value):
    try:
        text = shown(fn(torch.arange(3.0), value))
    except Exception as error:
        text = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
    return re.sub(r"(\d\.\d{4})\d+|0x[0-9a-f]+", r"\1", text)


def main():
    backend = sys.argv[1] if len(sys.argv) > 1 else "inductor"
    limits = {"recompile_limit": 500, "accumulated_recompile_limit": 2000}
    calls = differences = 0
    warnings.simplefilter("ignore")
    for order in range(2):
        for name, fn in FUNCTIONS.items():
            values = random.Random(order).sample(VALUES, len(VALUES)) if order else VALUES
            fxstack.reset()
            compiled = fxstack.compile(fn, backend=backend, options=limits)
            for value in [*values, *values[:10]]:
                expected, found = outcome(fn, value), outcome(compiled, value)
                calls += 1
                if expected != found:
                    differences += 1
                    print(f"{name}, {value!r}:\n  plain    {expected}\n  compiled {found}")
    print(f"{backend}: {calls} calls, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["eager"]
        FUNCTIONS = dict([*FUNCTIONS.items()][:2])
    sys.exit(main())
