"""Symbolic numbers in places that need the number itself."""

import pytest
import torch
from tracing import trace_call


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
