"""Annotations of ``torch.fx.traceback.annotate`` and regions of ``record_function`` in graphs."""

import pytest
import torch
from torch.autograd.profiler import record_function
from torch.fx.traceback import annotate, annotate_fn

import fxstack
from fxstack_interchange import load, save


def annotated(x):
    with annotate({"stage": "a"}):
        y = x.sin()
        with annotate({"inner": 1}):
            y = y + 1
    return y * 2


@annotate_fn({"whole": True})
def decorated(x):
    return x.cos()


def captured(fn):
    """Return the annotations of the nodes of the graph that a backend gets."""
    found = []

    def backend(graph_module, _inputs):
        found.extend(
            (n.target, n.meta.get("custom")) for n in graph_module.graph.nodes if n.op.startswith("call_")
        )
        return graph_module.forward

    x = torch.rand(3)
    torch.testing.assert_close(fxstack.compile(fn, backend=backend, fullgraph=True)(x), fn(x))
    return [custom for _, custom in found]


@pytest.mark.parametrize(
    ("fn", "customs"),
    [
        (annotated, [{"stage": "a"}, {"stage": "a", "inner": 1}, None]),
        (decorated, [{"whole": True}]),
        (lambda x: decorated(x) + 1, [{"whole": True}, None]),
        (lambda x: x + 1, [None]),
    ],
)
def test_nodes_have_the_annotations_around_them(fn, customs):
    assert captured(fn) == customs


def test_annotations_reach_the_forward_and_the_backward(tmp_path):
    fxstack.reset()
    compiled = fxstack.compile(annotated, fullgraph=True, options={"use_cache": False})
    compiled(torch.rand(3, requires_grad=True)).sum().backward()
    joint, forward, backward = (graph for _, graph in fxstack.compile_log(compiled).graphs)
    by_name = {node.name: node.meta.get("custom") for node in joint.graph_module.graph.nodes}
    assert by_name["sin"] == by_name["cos"] == {"stage": "a"}
    for part in (forward, backward):
        nodes = part.graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
        nodes += part.graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.cos.default)
        assert [node.meta["custom"] for node in nodes] == [{"stage": "a"}]
    save(joint, tmp_path / "joint.fxg")
    loaded = load(tmp_path / "joint.fxg")
    assert not any("custom" in node.meta for node in loaded.graph_module.graph.nodes)


def region(x):
    with record_function("mine"):
        y = x.sin()
    return y * 2


def test_a_region_of_the_profiler_adds_nothing_to_the_graph():
    assert captured(region) == [None, None]
