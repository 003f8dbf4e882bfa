"""Graphs over wrapper subclasses: taken apart, compiled, put together; autograd differentiates the wrappers."""

import pytest
import torch
from helpers import run_graph, save_everything
from torch.testing._internal.two_tensor import TwoTensor

from fxstack_functionalize import AotOptions, aot_function
from fxstack_functionalize.subclasses.layout import flatten_all, layout_of


def two(*size, grad=False):
    inner = torch.arange(float(torch.Size(size).numel())).reshape(size)
    return TwoTensor(inner + 1, inner * 2).requires_grad_(grad)


def compiled(fn, graphs=None):
    def compiler(module, example_inputs):
        if graphs is not None:
            graphs.append(module)
        return run_graph(module, example_inputs)

    return aot_function(
        fn, fw_compiler=compiler, partitioner=save_everything, options=AotOptions(verify=True)
    )


def inner_of(value):
    return [value.a.tolist(), value.b.tolist()] if type(value) is TwoTensor else value.tolist()


PROGRAMS = {
    "product": lambda x, y: x * y + 1,
    "several": lambda x, y: (x @ y.t(), (x * 2).sum()),
    "in_place": lambda x, y: (x * 1).add_(y).mul_(2),
    "views": lambda x, y: (x * y).view(-1)[1:],
}


def both(fn, *, grad):
    seen = []
    for f in (fn, compiled(fn)):
        x, y = two(2, 3, grad=grad), two(2, 3, grad=grad)
        results = f(x, y)
        results = results if isinstance(results, tuple) else (results,)
        if grad:
            sum(r.sum() for r in results).backward()
        gradients = [inner_of(t.grad) for t in (x, y) if t.grad is not None]
        seen.append([[inner_of(r.detach()) for r in results], gradients])
    return seen


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name, grad):
    eager, ours = both(PROGRAMS[name], grad=grad)
    assert ours == eager


def test_an_input_that_is_changed():
    x, y = two(3), two(3)
    result = compiled(lambda t: t.add_(1) * 2)(x)
    assert inner_of(result) == inner_of(y.add_(1) * 2)
    assert inner_of(x) == inner_of(y)


def test_graphs_hold_plain_tensors_only():
    graphs = []
    compiled(lambda x, y: x * y, graphs)(two(3), two(3))
    (graph,) = graphs
    assert all(type(n.meta["val"]) is not TwoTensor for n in graph.graph.nodes if "val" in n.meta)
    assert len(graph.graph.find_nodes(op="placeholder")) == 4


def test_layouts_take_apart_and_rebuild():
    value = TwoTensor(two(2, 3), two(2, 3))
    layout = layout_of(value)
    parts = flatten_all([layout], [value])
    assert len(parts) == len(layout.leaves) == 4
    assert torch.equal(layout.assemble(iter(parts), iter(())).a.b, value.a.b)
    assert layout.fits(value)
    assert not layout.fits(two(2, 3))
