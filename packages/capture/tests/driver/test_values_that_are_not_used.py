"""Arguments that the program loads, but does not use, have no guards: a guard belongs to the first use."""

import pytest
import torch
from counting import Counting
from same import difference

import fxstack_capture as fx

X = torch.arange(4.0)
DTYPES = [torch.float32, torch.float64, torch.float16, torch.int32, torch.int64, torch.bool]
VALUES = {
    "int": range(2, 8),
    "float": [0.1 * k for k in range(6)],
    "str": "abcdef",
    "list": [[1] * k for k in range(6)],
    "tuple": [tuple(range(k)) for k in range(6)],
    "dtype": DTYPES,
    "sizes": [torch.ones(k) for k in range(6)],
    "dtypes of tensors": [torch.ones(2, dtype=dtype) for dtype in DTYPES],
    "requires_grad": [torch.ones(2, requires_grad=flag) for flag in (False, True)],
    "mixed": [None, 1, "a", 2.0, [1], {}, (1,), True],
}


def ignores(x, _n):
    return x * 2


def doubles(x, n):
    return x * n if isinstance(n, int | float) else x * 2


def stored(x, n):
    _ = n
    return x + 1


def passed(x, n):
    return ignores(x, n) + 1


def passed_by_name(x, n):
    return ignores(x, _n=n) + 1


def passed_twice(x, n):
    m = n
    return passed(x, m) + 1


class Scale(torch.nn.Module):
    def scaled(self, x, _n):
        return x * 3


def to_method(x, n, scale=Scale()):  # noqa: B008
    return scale.scaled(x, n)


def over_a_break(x, n):
    kept = n
    y = x + 1
    fx.graph_break()
    return ignores(y, kept)


def break_in_the_callee(x, n):
    return breaks(x, n) + 1


def breaks(x, n):
    y = x * 2
    fx.graph_break()
    return ignores(y, n)


def break_between_the_arguments(x, n):
    return ignores(breaks(x, 1), n)


PROGRAMS = (stored, passed, passed_by_name, passed_twice, to_method)
BREAKING = (over_a_break, break_in_the_callee)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("program", (*PROGRAMS, *BREAKING))
def test_one_graph_for_all_values(program, kind):
    backend = Counting()
    compiled = fx.optimize(backend)(program)
    for value in VALUES[kind]:
        assert torch.equal(compiled(X, value), program(X, value))
    assert len(backend.graphs) == 1 + (program in BREAKING)


def later(x, n):
    m = n
    y = ignores(x, m)
    return doubles(y, m), m


def written(x, n):
    m = n
    n = 7
    return x * n, m


def swapped(x, n, k=5):
    n, k = k, n
    return doubles(x, n), k


def mutated(x, n):
    m = n
    if isinstance(n, list):
        n.append(1)
    return ignores(x, m), len(m) if isinstance(m, list) else m


def same(x, n):
    m = n
    return ignores(x, m) if m is n else x, m == n


def named(x, n):
    m = n
    return ignores(x, m), sorted(locals())


def collected(x, n):
    def inner(*args, **names):
        return x * 2, args, names

    m = n
    return inner(m, other=m)


def printed(x, n):
    m = n
    return doubles(x, m), f"{m}"


def yielded(x, n):
    def inner(y, m):
        yield y * 2
        yield m

    return list(inner(x, n))


@pytest.mark.parametrize("kind", ["int", "float", "str", "list", "tuple", "mixed", "requires_grad"])
@pytest.mark.parametrize(
    "program",
    [later, written, swapped, mutated, same, named, collected, printed, yielded, break_between_the_arguments],
)
def test_values_that_are_used_are_guarded(program, kind):
    compiled = fx.optimize()(program)
    for value in VALUES[kind]:
        args = ((X, [*value]), (X, [*value])) if isinstance(value, list) else ((X, value),) * 2
        found, expected = compiled(*args[0]), program(*args[1])
        assert difference((found, args[0]), (expected, args[1])) is None
