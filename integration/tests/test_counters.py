"""``torch._dynamo.utils.counters`` while fxstack is installed, beside the figures of torch's own compiler."""

import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters

import fxstack

X = torch.randn(3, 4)


def one_graph(x):
    return x.sin() + x.cos()


def graph_break(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y + 1


def branch(x):
    return x + 1 if x.sum() > 100 else x - 1


def counted(fn):
    """``frames``, ``stats`` and the number of graph breaks of one call of the compiled ``fn``."""
    torch._dynamo.reset()
    counters.clear()
    torch.compile(fn, backend="eager")(X)
    found = {group: dict(counters[group]) for group in ("frames", "stats")}
    return found, sum(counters["graph_break"].values())


@pytest.fixture
def installed():
    fxstack.install()
    yield
    fxstack.uninstall()
    counters.clear()


@pytest.mark.parametrize(
    ("fn", "breaks"), [(one_graph, 0), (graph_break, 1), pytest.param(branch, 1, id="branch, 0 in torch")]
)
def test_the_same_figures_as_torchs_compiler(fn, breaks):
    theirs, _breaks_in_torch = counted(fn)
    fxstack.install()
    try:
        assert counted(fn) == (theirs, breaks)
    finally:
        fxstack.uninstall()


def test_a_graph_break_is_counted_by_its_reason(installed):
    counted(graph_break)
    (reason,) = counters["graph_break"]
    assert "graph_break" in reason


def test_graphs_of_the_default_backend_and_of_the_disk_are_counted(installed, tmp_path, monkeypatch):
    monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_DIR", str(tmp_path))
    counters.clear()
    for _ in range(2):
        torch._dynamo.reset()
        torch.compile(one_graph)(X)
    assert dict(counters["aot_autograd"]) == {
        "total": 2,
        "ok": 2,
        "autograd_cache_miss": 1,
        "autograd_cache_hit": 1,
    }
    assert dict(counters["inductor"]) == {"fxgraph_cache_miss": 1, "fxgraph_cache_hit": 1}


def test_without_install_nothing_is_counted():
    counters.clear()
    fxstack.compile(one_graph, backend="eager")(X)
    assert not counters
