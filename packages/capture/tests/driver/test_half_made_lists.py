# ruff: noqa: C416, PERF401, RUF005 - programs
"""Graph breaks inside of list comprehensions: the same code for every element, and the list is eager's."""

import pytest
import torch
from running import check

X = torch.tensor([1.0, 2.0, 3.0])
TWICE = [1, 1, 1]


def leaf(x, n=0):
    y = x * 2
    print("leaf", n)
    return y + n


def fails_at(x, n):
    if n == 7:
        raise ValueError(n)
    return leaf(x, n)


def plain(x, n):
    return [leaf(x) for _ in range(n)]


def numbered(x, n):
    return sum([leaf(x, i) for i in range(2, n)]) * 3


def with_conditions(x, n):
    return [leaf(x, i) for i in range(n) if i % 2 if i != 5]


def nested(x, n):
    return [[leaf(x + j) for j in range(3)] for i in range(n // 3)]


def below_others(x, n):
    return [*TWICE, [leaf(x) for _ in range(n)], x], TWICE + [leaf(x) for _ in range(n)]


def two_loops(x, n):
    return [leaf(x, j) for _ in range(n // 4) for j in range(3)]


def left_by_an_exception(x, n):
    made = []
    try:
        made = [fails_at(x, i) for i in range(n)]
    except ValueError as error:
        return made, error.args, x + 1
    return made, x


def over_tensors(x, n):
    return torch.stack([leaf(row) for row in x.expand(n, 3)])


def filled_by_statements(x, n):
    made = []
    for i in range(n):
        made.append(leaf(x, i))
    return made


PROGRAMS = [plain, numbered, with_conditions, nested, two_loops, below_others]


@pytest.mark.parametrize("program", [*PROGRAMS, left_by_an_exception, over_tensors, filled_by_statements])
@pytest.mark.parametrize("n", [0, 1, 9])
def test_result(program, n):
    check(program, X, n)


@pytest.mark.parametrize("program", [plain, numbered, two_loops, over_tensors])
def test_graphs_do_not_grow_with_the_list(program):
    assert len(check(program, X, 12)) == len(check(program, X, 24))
