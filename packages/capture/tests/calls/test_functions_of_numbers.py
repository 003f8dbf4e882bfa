"""Functions of module ``math`` and ``round`` of sizes and dynamic floats: compiled once, and exact."""

import collections
import functools
import math
import types

import pytest
import torch
from counting import Counting

import fxstack_capture as fx
from fxstack_capture.calls.rules.builtins.size_arithmetic import OF_NUMBERS

FUNCTIONS = {name: getattr(math, name) for name in OF_NUMBERS} | {"round": round}


def outcome(fn, *args):
    try:
        return fn(*args)
    except (ValueError, ArithmeticError, TypeError) as error:
        return repr(error)


def check_all(fn, calls):
    """Compiled equals plain for each of ``calls``; how many graphs that took."""
    backend = Counting()
    compiled = fx.optimize(backend)(fn)
    for args in calls:
        found, expected = outcome(compiled, *args), outcome(fn, *args)
        if isinstance(expected, torch.Tensor):
            assert found.dtype == expected.dtype
            assert torch.equal(found, expected)
        else:
            assert found == expected
    return len(backend.graphs)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_of_sizes(name):
    function = FUNCTIONS[name]
    graphs = check_all(lambda x: x * function(x.shape[0]), [(torch.ones(n),) for n in range(3, 9)])
    assert graphs <= 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_of_floats(name):
    function = FUNCTIONS[name]
    x, numbers = torch.ones(2), (1.25, 2.5, 0.3, 7.75, 0.6, 3.5)
    graphs = check_all(lambda x, s: x * function(s), [(x, s) for s in numbers])
    assert graphs <= 2 or name in ("isqrt", "asin", "acos", "acosh", "atanh")


POWERS = {
    "constant base": lambda x, n: x * (1 - math.pow(0.9, n)),
    "constant exponent": lambda x, n: x * math.pow(n, 0.5),
    "one number twice": lambda x, n: x * math.pow(n, n * 0.01),
    "logarithm": lambda x, n: x * math.log(n + 1, 2),
    "changing base": lambda x, n: x * math.log(3.5, n + 2),
}


@pytest.mark.parametrize("name", POWERS)
@pytest.mark.parametrize("numbers", [range(2, 10), (2.5, 0.3, 7.75, 1e3)])
def test_powers_and_logarithms(name, numbers):
    assert check_all(POWERS[name], [(torch.ones(2, dtype=torch.float64), n) for n in numbers]) == 2


@pytest.mark.parametrize(
    ("base", "exponent"), [(-2, 3), (0, -1), (10, 400), (-1.5, 0.5), (True, 2), ("a", 1)]
)
def test_powers_that_do_not_fit(base, exponent):
    calls = [(torch.ones(2), 2, 3), (torch.ones(2), 3, 4), (torch.ones(2), base, exponent)]
    check_all(lambda x, a, b: x * math.pow(a, b), calls)


def scaled(x, s):
    return x * math.sqrt(s) + math.log(s) if s != 5.0 else x


@pytest.mark.parametrize("odd", [0.0, -0.0, -1.0, math.inf, -math.inf, math.nan, 5.0, 1e308, 4, True])
def test_numbers_that_do_not_fit(odd):
    x = torch.ones(2)
    numbers = (1.5, 2.5, odd, 3.5, odd)
    backend = Counting()
    compiled = fx.optimize(backend)(scaled)
    for s in numbers:
        found, expected = outcome(compiled, x, s), outcome(scaled, x, s)
        assert str(found) == str(expected)


def finite(x, s):
    return x * s if math.isfinite(s) else x - 1


def test_a_predicate_is_asked_in_every_call():
    x = torch.ones(2)
    check_all(finite, [(x, s) for s in (1.5, 2.5, math.inf, 3.5, -math.inf, 0.25)])


def several(x):
    root = math.sqrt(x.shape[0])
    return x * root + math.sqrt(x.shape[0]) * math.exp(root) + int(root) + (root > 2)


def test_several_of_one_number():
    assert check_all(several, [(torch.ones(n),) for n in (5, 6, 7, 8)]) <= 2


def made(x, s):
    return x.new_tensor([x.shape[0], 2]) + x.new_tensor(s), x.new_tensor([s, 1.0], dtype=torch.half)


def test_new_tensor():
    for dtype in (torch.float32, torch.float64, torch.int64):
        backend = Counting()
        compiled = fx.optimize(backend)(made)
        for n, s in ((3, 2.5), (4, 3.5), (5, 4.5), (6, 5.5)):
            x = torch.ones(n).to(dtype)
            for found, expected in zip(compiled(x, s), made(x, s), strict=True):
                assert found.dtype == expected.dtype
                assert torch.equal(found, expected)
        assert len(backend.graphs) <= 2 or dtype is torch.int64


TEXTS = {
    "OrderedDict": lambda n: repr(collections.OrderedDict(a=n)),
    "defaultdict": lambda n: str(collections.defaultdict(int, a=n)),
    "values": lambda n: repr({"a": n}.values()),
    "items": lambda n: f"{ {'a': n}.items() }",
    "slice": lambda n: repr(slice(n)),
    "list": lambda n: repr(type("List", (list,), {})([n])),
    "partial": lambda n: repr(functools.partial(max, n))[-3:],
    "namespace": lambda n: repr(types.SimpleNamespace(a=[n])),
    "deque": lambda n: f"{collections.deque([n / 2])}",
    "exception": lambda n: str(KeyError(n)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_containers_show_numbers(name):
    text = TEXTS[name]
    backend = Counting()
    compiled = fx.optimize(backend, dynamic=True)(lambda x: (x * 2, text(x.shape[0])))
    for n in (3, 4):
        assert compiled(torch.ones(n))[1] == text(n)
    assert backend.graphs


def rectification(step, beta2=0.999):
    """The factor of RAdam."""
    most = 2 / (1 - beta2) - 1
    length = most - 2 * step * beta2**step / (1 - beta2**step)
    return math.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))


FORMULAS = (
    lambda x, s: x * (0.5 * (1 + math.cos(math.pi * s / 20))),
    lambda x, s: x * math.cos(math.pi * (s - 2) / (20 - 2)),
    lambda x, s: x * (0.05 + 0.85 * math.exp(-1.0 * s / 200)),
    lambda x, s: x * math.log(s + 1) * math.log(1 + s * 0.01),
    lambda x, s: x * math.sqrt(2 * s + 1) * math.sqrt(1 / s),
    lambda x, s: x * math.cos(math.sin(s / 3) + 1),
    lambda x, s: x * math.sqrt(1 - 0.999**s) / (1 - 0.9**s),
    lambda x, s: (x * 1, 2 / (1 + math.exp(-10 * s / 100)) - 1, -math.exp(-(s + 0.5))),
    lambda x, s: x * math.sqrt(s * 10**17),
    lambda x, s: x * math.sqrt((s + 1) * (s + 3) / (s * 2 + 1)),
    lambda x, s: x * math.sqrt(0.999**s / (1 - 0.999**s)),
    lambda x, s: x * math.exp(-((s - 4.5) * (s - 4.5)) / 2) * math.log(s + 1 / s),
    lambda x, s: x * math.tanh((s + 0.1) - s) * math.cos(s * 0.1 * 10 - s),
    lambda x, s: x * rectification(s + 5),
)


@pytest.mark.parametrize("fn", FORMULAS)
def test_of_formulas(fn):
    """What schedules compute of the number of a step."""
    x = torch.ones(2)
    for numbers in ((3, 4, 5, 6, 7, 8), (1.25, 2.5, 0.3, 7.75, 0.6)):
        backend = Counting()
        compiled = fx.optimize(backend)(fn)
        for s in numbers:
            assert str(compiled(x, s)) == str(fn(x, s))
        assert len(backend.graphs) <= 2


OVERFLOWING = (
    lambda x, s: x * math.sqrt(s * s + 1),
    lambda x, s: (x * 1, s * s, s * s - s * s),
    lambda x, s: (x * 1, s * 1e200 * 1e200 * 0.0, s * 1e200 * 1e200 == math.inf),
    lambda x, s: x * (s * 1e308 - s * 1e308),
    lambda x, s: x if s * s > 5 else x * min(s * s, 3.0),
    lambda x, s: (x * 1, f"{s * 1e200 * 1e200}", -(s * 1e308 * 10) / s),
    *FORMULAS,
)


@pytest.mark.parametrize("fn", OVERFLOWING)
def test_of_results_that_overflow(fn):
    x = torch.ones(2)
    for numbers in ((2.0, 3.0, 1e300, 0.0, -1e300, 5.0), (1e300, 0.5, 1e301, 2.0), (1, 2, 10**18, 3)):
        compiled = fx.optimize(lambda graph, _: graph)(fn)
        for s in numbers:
            assert str(outcome(compiled, x, s)) == str(outcome(fn, x, s))
