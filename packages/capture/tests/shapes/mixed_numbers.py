"""A family of functions that mix symbolic integers with bools and with floats, beside plain Python."""

import itertools
import math
import operator
import warnings

import torch

import fxstack_capture

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
ARITHMETIC = ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow", "lshift", "and_", "or_", "xor")
SIZES = {
    "h": lambda h: h,
    "h // h": lambda h: h // h,
    "h - h": lambda h: h - h,
    "h ** 0": lambda h: h**0,
    "h > 2": lambda h: h > 2,
    "float(h)": float,
    "h * 1.0": lambda h: h * 1.0,
    "h / h": lambda h: h / h,
}
WITH_BOOLS = list(itertools.product(SIZES, (*COMPARISONS, *ARITHMETIC), (False, True)))
"""A number of a size, an operator, and whether the argument is on the left."""

EDGE = 2**53
FORMS = {
    "m, float(m)": lambda m, f: (m, float(m)),
    "m, f": lambda m, f: (m, f),
    "m, 2.5": lambda m, f: (m, 2.5),
    "m, 2.0**53": lambda m, f: (m, 2.0**53),
    "m, inf": lambda m, f: (m, math.inf),
    "m, nan": lambda m, f: (m, math.nan),
    "2**53 + 1, f": lambda m, f: (EDGE + 1, f),
    "m + 1, f + 1": lambda m, f: (m + 1, f + 1),
}
USES = {
    **{name: getattr(operator, name) for name in COMPARISONS},
    "max": max,
    "min": lambda a, b: min(a, b, 2.5),
    "sorted": lambda a, b: sorted([a, b, EDGE + 1])[0],
    "in": lambda a, b: b in [a, 2],
    "count": lambda a, b: [a, 1].count(b),
    "of tuples": lambda a, b: (a, 1) < (b, 2),
    "set": lambda a, b: len({a, b}),
    "key": lambda a, b: {a: 1}.get(b),
    "clamp": lambda a, b: min(max(a, -b), b),
}
# C code that compares a float of the trace with a large constant gets the rounded constant (exact_comparisons).
WITH_FLOATS = [
    case
    for case in itertools.product(FORMS, USES, (False, True))
    if case[0] != "2**53 + 1, f" or case[1] in COMPARISONS
]
"""Two numbers, a use of both, and whether they are exchanged."""


def outcome(fn, *args):
    try:
        value, tensor = fn(*args)
    except Exception as error:
        return type(error), str(error)
    return type(value), repr(value), tensor.tolist()


def differences(fn, calls):
    compiled = fxstack_capture.optimize(lambda graph, _: graph.forward)(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more graphs than the limit
        found = [(args, outcome(compiled, *args), outcome(fn, *args)) for args in calls]
    return [row for row in found if row[1] != row[2]]


def with_bool(form, name, swapped):
    """The calls that differ if a number of a size meets an int, then a bool."""
    number, apply = SIZES[form], getattr(operator, name)

    def fn(x, m):
        n = number(x.shape[0])
        value = apply(m, n) if swapped else apply(n, m)
        return value, x * 2 if value else x * 3

    sizes = ((5, 2), (6, 3), (7, 1), (8, True), (9, False), (5, True))
    return differences(fn, [(torch.ones(size), m) for size, m in sizes])


def with_float(form, use, swapped):
    """The calls that differ if integers around 2**53 meet floats."""
    numbers, apply = FORMS[form], USES[use]

    def fn(x, m, f):
        a, b = numbers(m, f)
        value = apply(b, a) if swapped else apply(a, b)
        return value, x * 2 if value else x * 3

    integers = (3, 5, EDGE + 1, EDGE, EDGE - 1, -EDGE - 1, EDGE + 3, 7, 2**62 + 1)
    floats = lambda m: (float(m), 5.0, float(EDGE))
    return differences(fn, [(torch.ones(3), m, f) for m in integers for f in floats(m)])
