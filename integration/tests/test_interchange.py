"""Every graph that the stages hand on keeps the format's rules and travels in its files."""

import pytest
import torch
import zoo

import fxstack
import fxstack_capture
from fxstack_interchange import load, save, to_bytes, verify


def stage_graphs(name):
    case = zoo.build(name)
    case.model.train()
    compiled = fxstack.compile(case.model)
    case.loss(compiled, case.batch).backward()
    return [graph for _, graph in fxstack.compile_log(compiled).graphs]


def assert_travels(graph, tmp_path):
    verify(graph)
    path = tmp_path / "graph.fxg"
    save(graph, path)
    loaded = load(path)
    assert loaded.signature == graph.signature
    assert to_bytes(loaded) == path.read_bytes()


@pytest.mark.parametrize("name", ["bert", "llama", "resnet", "whisper", "mlp", "lstm"])
def test_joint_forward_and_backward_graphs_travel(name, tmp_path):
    graphs = stage_graphs(name)
    assert [g.signature.stage.value for g in graphs] == ["joint", "forward", "backward"]
    for graph in graphs:
        assert_travels(graph, tmp_path)


@pytest.mark.parametrize("name", ["gpt2", "unet", "vit"])
def test_captured_graphs_travel(name, tmp_path):
    case = zoo.build(name)
    case.model.eval()
    captured = fxstack_capture.capture(case.model, **case.batch)
    assert_travels(captured.stage_graph, tmp_path)


def test_symbolic_graphs_travel(tmp_path):
    def f(x, w):
        return (x @ w).relu().sum()

    compiled = fxstack.compile(f, dynamic=True)
    compiled(torch.randn(5, 4), torch.randn(4, 3, requires_grad=True)).backward()
    graphs = [graph for _, graph in fxstack.compile_log(compiled).graphs]
    assert graphs[0].signature.symbols
    for graph in graphs:
        assert_travels(graph, tmp_path)
