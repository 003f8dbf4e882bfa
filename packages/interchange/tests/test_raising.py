"""Operators that raise for data."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_interchange.torch_facts.raising import can_raise

FLOATS, INTEGERS = torch.rand(3, 3), torch.ones(3, dtype=torch.int64)


def calls(function, *args):
    graph = make_fx(function, tracing_mode="fake")(*args).graph
    return [can_raise(node) for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.floor_divide, (INTEGERS, INTEGERS)),
        (lambda x, i: x[i], (FLOATS, INTEGERS)),
        (lambda x, i: x.index_select(0, i), (FLOATS, INTEGERS)),
        (torch.linalg.inv, (FLOATS,)),
        (torch.histc, (FLOATS,)),
    ],
)
def test_can(function, args):
    assert any(calls(function, *args))


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.floor_divide, (FLOATS, FLOATS)),
        (torch.softmax, (FLOATS, 0)),
        (torch.sort, (INTEGERS,)),
        (torch.matmul, (FLOATS, FLOATS)),
    ],
)
def test_cannot(function, args):
    assert not any(calls(function, *args))
