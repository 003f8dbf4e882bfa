"""Graphs without a file around them: they compute the same when they come back; what they cannot hold is refused."""

import json

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_interchange import LoadError, SaveError
from fxstack_interchange.format.encoding.bare import graph_from_json, graph_to_json

X, OTHER = torch.randn(3, 4), torch.randn(3, 4)


def traced(fn, *inputs, mode="real"):
    return make_fx(fn, tracing_mode=mode)(*inputs)


def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,))


@pytest.mark.parametrize("fn", [lambda x: (x.t() @ x, x.sum(0)), chosen])
def test_a_graph_computes_the_same_when_it_comes_back(fn):
    module = traced(fn, X)
    back = graph_from_json(json.loads(json.dumps(graph_to_json(module))))
    torch.testing.assert_close(back(X), module(X))
    assert any("val" in node.meta for node in module.graph.nodes)


def with_a_size():
    """A graph one of whose arguments is a symbol itself."""
    module = traced(lambda x: x.view(-1), X, mode="symbolic")
    (view,) = module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default)
    view.args = (view.args[0], [view.meta["val"].shape[0]])
    return module


@pytest.mark.parametrize("module", [with_a_size(), traced(lambda x: x + OTHER, X)])
def test_what_a_bare_graph_cannot_hold_is_refused(module):
    with pytest.raises(SaveError):
        graph_to_json(module)


@pytest.mark.parametrize("content", [None, [], {}, {"nodes": [], "attributes": {}}, {"nodes": 3}])
def test_malformed_graphs_are_load_errors(content):
    with pytest.raises(LoadError):
        graph_from_json(content)
