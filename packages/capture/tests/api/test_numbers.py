"""Numbers that are symbolic while tracing are plain numbers to the program: values, text, errors."""

import copy
import json
import math
import operator

import pytest
import torch
from beside import breaks_beside_plain
from counting import Counting
from same import difference

from fxstack_capture import native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")

OPERATIONS = {
    "add to text": lambda n, x: "a" + n,
    "add text": lambda n, x: n + "a",
    "times dict": lambda n, x: n * {},
    "call": lambda n, x: n(),
    "item": lambda n, x: n[0],
    "attribute": lambda n, x: n.foo,
    "set attribute": lambda n, x: setattr(n, "a", 1),
    "delete attribute": lambda n, x: delattr(n, "real"),
    "iterate": lambda n, x: list(n),
    "unpack": lambda n, x: [a for a, b in [n]],
    "length": lambda n, x: len(n),
    "join": lambda n, x: ",".join([n]),
    "compare with text": lambda n, x: n < "a",
    "int of a list": lambda n, x: int([n]),
    "key": lambda n, x: {1: 2}[n],
    "index": lambda n, x: [1][n],
    "divide by zero": lambda n, x: n // 0,
    "text": lambda n, x: str(n) + repr(n) + f"{n:>5}{n!r}",
    "format": lambda n, x: "%s %r %5.1f" % (n, n, n),  # noqa: UP031
    "type": lambda n, x: (type(n).__name__, n.__class__),
    "in a number": lambda n, x: n in 3,
    "list and number": lambda n, x: [1] * n + n,
    "sort with text": lambda n, x: sorted([n, "a"]),
    "sum with text": lambda n, x: sum([n, "a"]),
    "max": lambda n, x: max(n),
    "raise": lambda n, x: (_ for _ in ()).throw(n),
    "unary": lambda n, x: (-n, +n, abs(n), ~n),
    "bits": lambda n, x: (n & 3, n | 4, n ^ 1, n << 2, n >> 1),
    "power": lambda n, x: n**2 + 2**n,
    "divmod": lambda n, x: divmod(n, 3),
    "methods": lambda n, x: (n.real, n.conjugate(), n.as_integer_ratio(), n.__add__(3)),
    "hash": lambda n, x: ({n: 1}, {n}, frozenset([n]), (n,) in {(3,)}),
    "equal": lambda n, x: (n == 3.0, n == "a", n != None),  # noqa: E711
    "json": lambda n, x: json.dumps({"a": n}),
    "copy": lambda n, x: copy.deepcopy([n]),
    "range": lambda n, x: (list(range(n)), "ab" * n, [0] * n, bytes(n)),
    "shift": lambda n, x: 1 << -n,
    "int's method": lambda n, x: int.__add__(n, 3),
    "math": lambda n, x: (math.sqrt(n), math.floor(n / 2), math.isclose(n, 3.0), float(n)),
    "operator.index": lambda n, x: operator.index(n),
}


def program(operation, of_size):
    def run(x, value):
        number = x.shape[0] if of_size else value
        try:
            result = operation(number, x)
        except Exception as error:
            result = type(error).__name__, str(error)
        return x + 1, result

    return run


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("of_size", [True, False])
def test_a_symbolic_number_is_a_number(name, of_size):
    run = program(OPERATIONS[name], of_size)
    compiled = optimize(dynamic=True)(run)
    for size in (3, 5):
        arguments = (torch.ones(size), size + 0.5)
        text = difference(run(*arguments), compiled(*arguments))
        assert text is None, text


def test_integers_without_bounds():
    """What a symbol cannot hold compiles anew."""
    fn = optimize()(lambda x, n: (x * (n % 7), n * 3))
    x = torch.ones(2)
    for n in (2, 3, 5, 2**62, 2**70, -(2**80), 4):
        found = fn(x, n)
        assert found[1] == n * 3
        assert torch.equal(found[0], x * (n % 7))


BEYOND_WORDS = {
    "power": lambda x, n, most: x + 1 if 2**n > most else x - 1,
    "power of": lambda x, n, most: x + 1 if n**5 > most else x - 1,
    "shift": lambda x, n, most: x + 1 if n << 40 > most else x - 1,
    "hash": lambda x, n, most: x * ((n * 6364136223846793005 + most) % 2**64 >> 60),
    "bits": lambda x, n, most: x + 1 if (1 << n) % 1000 > most else x - 1,
}


@pytest.mark.parametrize("name", BEYOND_WORDS)
def test_decisions_about_numbers_of_more_than_64_bits(name):
    given = [(62, 2**61), (63, 5), (2**13, 2**59), (64, 2**63), (2**13, 5), (70, 2**70), (3, 7)]
    pairs = iter([pair for pair in given for _ in range(2)])
    breaks_beside_plain(BEYOND_WORDS[name], lambda: (torch.ones(2), *next(pairs)), calls=len(given))


def test_arithmetic_on_numbers_alone_is_left_to_python():
    """Numbers become symbolic by changing; a graph of them would only cost."""
    graphs = Counting()
    fn = optimize(graphs)(lambda n, m: n * m + 1)
    assert [fn(n, n + 1) for n in (2, 3, 5, 2**64)] == [7, 13, 31, 2**128 + 2**64 + 1]
    assert not graphs.graphs


DIVISIONS = {
    "floor": lambda n: 5 // n,
    "modulo": lambda n: 5 % n,
    "divmod": lambda n: divmod(7, n),
    "true": lambda n: 1.5 / n,
    "power": lambda n: n**-1,
    "root": lambda n: n**0.5,
}


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("values", [(2, 3, 4, 0, -2, 5), (2.5, 3.5, 4.5, 0.0, -2.5, 5.5)])
def test_a_division_by_zero_is_caught_where_the_program_catches_it(name, values):
    def run(x, n):
        try:
            return x + 1, DIVISIONS[name](n)
        except ZeroDivisionError as error:
            return x - 1, str(error)

    compiled = optimize()(run)
    for value in values:
        text = difference(run(torch.ones(2), value), compiled(torch.ones(2), value))
        assert text is None, text


TRUTHS = {
    "if": lambda x, n: x * (3 if x.shape[0] else 4),
    "not": lambda x, n: x * (3 if not x.shape[0] else 4),
    "bool": lambda x, n: x * (3 if bool(n) else 4),
    "and": lambda x, n: x * (x.shape[0] and 7) + (n or 2),
}


@pytest.mark.parametrize("case", TRUTHS)
def test_truth_asks_only_whether_it_is_zero(case):
    counting, fn = Counting(), TRUTHS[case]
    compiled = optimize(counting, dynamic=True)(fn)
    for size in (4, 5, 6):
        assert torch.equal(compiled(torch.ones(size), size), fn(torch.ones(size), size))
    assert len(counting.graphs) == 1
    assert torch.equal(compiled(torch.ones(4), 0), fn(torch.ones(4), 0))


class Sized:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length


def _outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("length", [-1, 2**70, 1.5, None, "a", True, 0, 3])
def test_truth_of_a_length(length):
    def fn(x, sized):
        return x * (3 if sized else 4)

    plain, compiled = (_outcome(f, torch.ones(2), Sized(length)) for f in (fn, optimize()(fn)))
    assert difference(plain, compiled) is None
