"""Shared regions from the program to the compiled code: equal parts of a graph, and ``nested_compile_region``."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fxstack

SIZE = 16  # sums of rows of 16 numbers have one order in any kernel


class Block(nn.Module):
    def __init__(self, drop=0.0, norm=nn.LayerNorm):
        super().__init__()
        self.norm, self.up, self.down = norm(SIZE), nn.Linear(SIZE, 16), nn.Linear(16, SIZE)
        self.drop = drop

    def forward(self, x):
        y = self.up(self.norm(x)).sin().exp().tanh()
        y = F.dropout(F.gelu(y), self.drop, self.training)
        return x + self.down(y) * 0.5


class Region(Block):
    @torch.compiler.nested_compile_region
    def forward(self, x):
        return super().forward(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        block = Block()
        self.blocks = nn.ModuleList([block, block, Block(), block, block])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def stack(count=5, **options):
    return lambda: nn.Sequential(*(Block(**options) for _ in range(count)))


MODELS = {
    "blocks": stack(),
    "dropout": stack(drop=0.3),
    "batch norm": stack(norm=nn.BatchNorm1d),
    "tied weights": Tied,
    "regions": lambda: nn.Sequential(*(Region() for _ in range(3))),
    "regions with dropout": lambda: nn.Sequential(*(Region(0.3) for _ in range(3))),
}


def run(make, *, share, backend="inductor", dynamic=None, sizes=(8, 12), grad=True):
    """Results, gradients, buffers and versions of two steps, and the log."""
    torch.manual_seed(0)
    model = make()
    compiled = fxstack.compile(
        model, backend=backend, dynamic=dynamic, fullgraph=True, options={"share_regions": share}
    )
    values = []
    for size in sizes:
        x = torch.randn(size, SIZE, requires_grad=True)
        with torch.set_grad_enabled(grad):
            result = compiled(x)
        if grad:
            (result * torch.arange(SIZE)).sum().backward()
        values += [result, x.grad]
    values += [p.grad for p in model.parameters()]
    values += [x for b in model.buffers() for x in (b, torch.tensor(b._version))]
    return values, fxstack.compile_log(compiled)


def check(make, **options):
    """Equal with and without shared regions, bit by bit. Return the regions of the log."""
    shared, log = run(make, share=True, **options)
    alone, _ = run(make, share=False, **options)
    for one, other in zip(shared, alone, strict=True):
        assert (one is None) == (other is None)
        assert one is None or (torch.equal(one, other) and one.stride() == other.stride())
    return [region for _, region in log.regions]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", MODELS)
def test_results_equal_the_unshared_ones(name, backend):
    check(MODELS[name], backend=backend)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_blocks_share(dynamic, grad):
    regions = check(stack(), backend="aot_eager", dynamic=dynamic, grad=grad)
    assert {(region.calls, region.refusal) for region in regions} <= {(5, None), (4, None)}
    assert regions


def test_batch_norm_next_to_a_boundary_does_not_share():
    (region,) = check(stack(norm=nn.BatchNorm1d), backend="aot_eager", sizes=(8,))
    assert "sum" in region.refusal


class MarkedInside(nn.Module):
    """The decorator is applied while the forward is compiled."""

    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        region = torch.compiler.nested_compile_region(self.block.up)
        block = torch.compiler.nested_compile_region(lambda x: self.block(x) * 2)
        return block(block(block(region(x))))


def test_a_region_may_be_marked_in_the_compiled_function():
    assert max(region.calls for region in check(MarkedInside, backend="aot_eager")) == 3


def test_a_region_has_one_body_for_each_kind_of_inputs():
    @torch.compiler.nested_compile_region
    def region(x, y):
        return (x.sin() + y).cos()

    def fn(x, y):
        return region(x, y).sum() + region(y, x).sum() + region(x[0], y[0]).sum() + region(x, y).prod()

    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    x, y = torch.randn(3, 3), torch.randn(3, 3)
    torch.testing.assert_close(fxstack.compile(fn, backend=backend, fullgraph=True)(x, y), fn(x, y))
    (graph,) = graphs
    calls = graph.graph.find_nodes(op="call_function", target=torch.ops.higher_order.invoke_subgraph)
    assert [node.args[1] for node in calls] == ["subgraph_0", "subgraph_0", "subgraph_1", "subgraph_0"]
    assert {name for name, _ in graph.named_children()} == {"subgraph_0", "subgraph_1"}


def test_the_summary_says_what_was_shared(monkeypatch, capfd):
    from fxstack.debug.start import Summary  # noqa: PLC0415
    from fxstack.log import LISTENERS  # noqa: PLC0415

    summary = Summary()
    monkeypatch.setattr("fxstack.log.LISTENERS", [*LISTENERS, summary])
    run(stack(), share=True, backend="aot_eager", sizes=(8,))
    assert "5 equal parts of" in summary.text()
    assert "share one compilation" in summary.text()


def test_options_about_the_whole_graph_turn_sharing_off():
    torch.manual_seed(0)
    compiled = fxstack.compile(stack()(), backend="aot_eager", options={"partitioner": "save_all"})
    compiled(torch.randn(4, SIZE)).sum().backward()
    assert fxstack.compile_log(compiled).regions == []


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_region_takes_an_index_from_data(backend):
    """Each trace makes another symbol for the number, so the body is traced in line."""
    row = torch.compiler.nested_compile_region(lambda x, table, i: x + table[i])
    compiled = fxstack.compile(lambda x, a, b, i: row(row(x, a, i), b, i), backend=backend, fullgraph=True)
    a, b = torch.arange(8.0).view(4, 2), torch.ones(4, 2)
    for i in (1, 3):
        assert compiled(torch.ones(2), a, b, torch.tensor(i)).equal(1 + a[i] + b[i])
