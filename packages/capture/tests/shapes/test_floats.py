"""Arithmetic on dynamic floats gives eager's floats, bit for bit, and one graph serves them all."""

import math

import pytest
import torch

import fxstack_capture

FORMULAS = """
a + 0.1 + 0.2 | (a + 0.1) - a | a * 3 / 7 * 7 | a * 0.1 * 10 | (a + 1e16) - 1e16 | -(a - a) | a * 0 | a - 1.1 + 1.1
0.1 + a + 0.2 + a | a * a * a | 1 / a - 1 | n / 3 * 3 | n * 0.1 * 10 | (n + 0.1) - n | 0.9 ** n | a + n / 7 + 0.3
1 - 0.9 ** n | min(a, 0.3) + max(a, 0.2) | a * 2 - a | (a + 0.1 if a + 0.1 > 0.7 else a - 0.1) + 0.2
""".replace("\n", "|").split("|")
STATIC = ["a // 0.3", "a % 0.3", "round(a, 1) + a", "int(a * 10) / 10", "math.floor(a) + a * 0.1"]
VALUES = [0.5, 0.7, 1.3, 3.3, 1e-9, 0.1, -2.6, 0.0, -0.0, math.inf, -math.inf, math.nan, 1e300]


def function(formula):
    scope = {"math": math}
    exec(f"def f(x, a, n):\n    y = {formula}\n    return x * y, y", scope)
    return scope["f"]


def outcome(fn, a, n):
    try:
        x, y = fn(torch.ones(1, dtype=torch.float64), a, n)
    except Exception as error:
        return type(error), str(error)
    return repr(x.item()), repr(y)


def check(formula, **options):
    fn, graphs = function(formula), []

    def backend(graph_module, _inputs):
        graphs.append(graph_module)
        return graph_module.forward

    chosen = fxstack_capture.CaptureOptions(recompile_limit=99, **options)
    compiled = fxstack_capture.optimize(backend, options=chosen)(fn)
    for count, a in enumerate(VALUES, 3):
        assert outcome(compiled, a, count) == outcome(fn, a, count), a
    return len(graphs)


@pytest.mark.parametrize("formula", [text.strip() for text in FORMULAS if text.strip()])
def test_same_bits_as_eager(formula):
    # Static first, then dynamic; zeros, infinities and NaN are compiled one by one.
    assert check(formula) <= 2 + 5 + 2


@pytest.mark.parametrize("formula", STATIC)
def test_what_is_not_exact_is_specialised(formula):
    check(formula)


def test_a_guard_on_a_computed_float_says_what_was_computed():
    fn = lambda x, a: x * 2 if a * 0.1 + 0.1 > 0.2 else x
    found = fxstack_capture.explain(fn, dynamic=True)(torch.ones(1), 3.5)
    texts = [g.check.text for g in found.guards if hasattr(g.check, "text")]
    assert "FloatAdd(FloatMul(a, 0.1), 0.1) > 0.2" in texts
