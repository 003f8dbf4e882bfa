"""Symbolic numbers in places that need the number itself."""

import collections
import numbers
import random

import pytest
import torch
from running import check
from tracing import trace_call

import fxstack_capture


def keys(x):
    n = x.shape[0]
    table = {n: "a"}
    table.setdefault(n + 1, "b")
    table[(n, 1)] = "c"
    return table[n], table.get(n + 1), n in table, {n, 3}, n in (1, 3), table.pop((n, 1))


def text(x):
    return f"{x.shape[0]}", str([x.shape[0]]), "%d" % x.shape[0], "{}".format(x.shape[0])


def indexing(x):
    n = x.shape[0]
    return [10, 20, 30, 40][n], list(range(n)), [0] * n, "ab" * n, (1, 2, 3, 4, 5)[1:n]


@pytest.mark.parametrize("fn", [keys, text, indexing])
def test_number_is_used(fn):
    x = torch.ones(3, 2)
    run = trace_call(fn, x, dynamic=True)
    assert repr(run.value) == repr(fn(x))


def classes(x):
    n, half, odd = x.shape[0], x.shape[0] * 0.5, x.shape[0] % 2 == 1
    kinds = int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool, numbers.Integral, object
    pairs = (torch.SymInt, str), (torch.SymFloat, float), int | torch.SymBool
    return [[isinstance(value, kind) for kind in (*kinds, *pairs)] for value in (n, half, odd)]


def test_numbers_are_of_the_classes_that_they_have_outside():
    x = torch.ones(3, 2)
    assert trace_call(classes, x, dynamic=True).value == classes(x)


def broadcast(x, y):
    common = torch.broadcast_shapes(x.shape[:-1], (y.shape[1],), torch.Size([1, 1]))
    return x[:, 0].expand(common), common


def test_shapes_are_broadcast_in_one_graph():
    check(broadcast, torch.ones(3, 2), torch.ones(1, 3), graphs=1, dynamic=True, fullgraph=True)


def truths(x):
    """Comparisons where C code, identity or a class asks for a bool."""
    more, same = x.shape[0] > 2, x.shape[0] == 1
    with torch.set_grad_enabled(same), torch.autocast("cpu", enabled=same):
        y = x.sum(0, keepdim=more), x.argsort(descending=more), x.std(unbiased=more)
    z = torch.zeros(2, requires_grad=more).requires_grad_(same)
    facts = more is True, max(same, more), sum([more, same]), [1, 2, 3][more:], more + 1
    return *y, z.requires_grad, facts


@pytest.mark.parametrize("dynamic", [None, True])
def test_comparisons_are_bools(dynamic):
    given = [torch.rand(n, 2) for n in (3, 4, 5, 2, 1)]
    check(truths, *given[:1], graphs=1, dynamic=dynamic, fullgraph=True)
    compiled = fxstack_capture.optimize(dynamic=dynamic, fullgraph=True)(truths)
    for x in given:
        torch.testing.assert_close(compiled(x), truths(x), equal_nan=True)


def coin(x):
    return x * (random.random() > 0.5)


def test_comparisons_of_drawn_numbers_end_no_graph():
    compiled = fxstack_capture.optimize(fullgraph=True)(coin)
    for seed in range(4):
        random.seed(seed)
        expected = coin(torch.ones(2))
        random.seed(seed)
        torch.testing.assert_close(compiled(torch.ones(2)), expected)


TABLES = {
    "dict": {3: "a", 20: "b"},
    "counter": collections.Counter([3, 20]),
    "set": {3, 20},
    "frozen set": frozenset({3, 20}),
}


@pytest.mark.parametrize("name", TABLES)
def test_keys_are_compared_with_a_number_that_changes(name):
    found, table = [], TABLES[name]

    def fn(x, n):
        return x * n if n not in table else x - n

    compiled = fxstack_capture.optimize(lambda graph, _: (found.append(graph), graph.forward)[1])(fn)
    for n in (2, *range(30)):
        torch.testing.assert_close(compiled(torch.ones(2), n), fn(torch.ones(2), n))
    assert len(found) <= 6  # 2; 0 and 1 by the rules of numbers; 3; 20; all others


@pytest.mark.parametrize("table", [{"a": 1}, {2.0: 1}, {True: 1}, {}, {(1,): 2}, dict.fromkeys(range(40))])
def test_numbers_are_found_by_value(table):
    def fn(x, n):
        return x * n, n in table, n in set(table)

    compiled = fxstack_capture.optimize()(fn)
    for n in (5, 6, 1, 2, 50):
        assert repr(compiled(torch.ones(2), n)) == repr(fn(torch.ones(2), n))
