"""Shared regions: equal parts of a captured graph are found, traced once and called, with the results of the parts alone."""

import pytest
import torch
from helpers import run_graph, save_everything
from torch import nn
from torch.fx import Interpreter, symbolic_trace
from torch.nn import functional as F

from fxstack_functionalize import AotOptions, aot
from fxstack_functionalize.regions.periods import Run, number_equal, runs
from fxstack_functionalize.regions.segments import MIN_COPIES
from fxstack_interchange.fake_mode import make_fake_mode

INVOKE = torch.ops.higher_order.invoke_subgraph


class Recorder(Interpreter):
    """Gives each node its fake value, as a captured graph has them."""

    def run_node(self, node):
        node.meta["val"] = value = super().run_node(node)
        return value


def captured(fn, *inputs):
    """The captured graph of a function of tensors, and its fake inputs."""
    module = symbolic_trace(fn)
    mode = make_fake_mode(None)
    fakes = [mode.from_tensor(x, static_shapes=True) for x in inputs]
    with mode:
        Recorder(module).run(*fakes)
    return module, fakes


def layer(x, w, v):
    """A layer of ten nodes."""
    y = F.relu(x @ w) @ v
    y = (y - y.mean(-1, keepdim=True)) * 2
    return x + torch.sigmoid(y).sin().cos()


def stack(layer, count=5):
    def fn(x, w, v):
        for _ in range(count):
            x = layer(x, w, v)
        return x

    return fn


def inputs():
    torch.manual_seed(0)
    return [torch.randn(4, 4, requires_grad=True) for _ in range(3)]


def compile_and_run(fn, *, share, grad=True):
    """Results, gradients, the records of the regions, and the graphs that were compiled."""
    graphs, records, values = [], [], inputs()

    def compiler(module, example_inputs):
        graphs.append(module)
        return run_graph(module, example_inputs)

    with torch.set_grad_enabled(grad):
        compiled = aot(
            *captured(fn, *values), fw_compiler=compiler, partitioner=save_everything,
            options=AotOptions(share_regions=share), on_regions=records.extend,
        )  # fmt: skip
        result = compiled(*values)
    flat = result if isinstance(result, tuple) else (result,)
    trained = [x for x in flat if x.requires_grad]
    if trained:
        sum(x.square().sum() for x in trained).backward()
    return [*flat, *(x.grad for x in values)], records, graphs


def check(fn, *, grad=True):
    """Shared and unshared results are equal, bit by bit. Return the records and the graphs of the shared run."""
    shared, records, graphs = compile_and_run(fn, share=True, grad=grad)
    alone, _, _ = compile_and_run(fn, share=False, grad=grad)
    for one, other in zip(shared, alone, strict=True):
        assert (one is None) == (other is None)
        assert one is None or (torch.equal(one, other) and one.stride() == other.stride())
    return records, graphs


def shared_calls(fn, **options):
    return [(each.calls, each.automatic) for each in check(fn, **options)[0] if not each.refusal]


def refusals(fn):
    return " ".join(each.refusal for each in check(fn)[0] if each.refusal)


def test_each_graph_calls_one_body():
    _, (forward, backward) = check(stack(layer))
    for graph in (forward, backward):
        calls = graph.graph.find_nodes(op="call_function", target=INVOKE)
        names = {node.args[1] for node in calls}
        assert len(calls) == 5
        assert names == {str(node.args[0].target) for node in calls}
        assert len({id(getattr(graph, name)) for name in names}) == 1


def test_training_and_inference_share():
    assert shared_calls(stack(layer)) == [(5, True)]
    assert shared_calls(stack(layer), grad=False) == [(5, True)]


def test_few_or_short_parts_are_untouched():
    assert shared_calls(stack(layer, MIN_COPIES - 1)) == []
    assert shared_calls(stack(lambda x, w, _v: torch.sin(x @ w), 20)) == []


def test_two_runs_of_equal_parts_share_one_body():
    def fn(x, w, v):
        return stack(layer)((stack(layer)(x, w, v)).exp().log(), w, v)

    assert shared_calls(fn) == [(10, True)]


def test_an_operand_that_two_parts_use_twice_is_not_shared():
    # A part would add its two terms of the gradient before the terms of other parts.
    assert shared_calls(stack(lambda x, w, v: layer(x, w, v) @ w)) == []


@pytest.mark.parametrize("name", ["draws", "two gradients", "a view"])
def test_refused_parts_are_traced_as_if_alone(name):
    kept = []
    bodies = {
        "draws": lambda x, w, v: F.dropout(layer(x, w, v), 0.0, training=True),
        "two gradients": lambda x, w, v: kept.append(layer(x, w, v)) or kept[-1].sin(),
        "a view": lambda x, w, v: layer(x, w, v).t(),
    }

    def fn(x, w, v):
        kept.clear()
        return stack(bodies[name])(x, w, v) + sum(map(torch.sum, kept))

    check(fn)


def test_the_last_part_may_get_a_gradient_of_another_layout():
    records, _ = check(lambda x, w, v: stack(layer)(x, w, v).sum())
    assert [each.calls for each in records if not each.refusal] == [4]
    assert "layout" in " ".join(each.refusal or "" for each in records)


def test_new_values_of_operands_are_written_back():
    buffer = torch.zeros(4)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", buffer.clone())

    model = Model()

    def fn(x, w, v):
        for _ in range(5):
            x = layer(x, w, v)
        return x

    assert shared_calls(fn)
    assert model.total is not buffer


def test_runs():
    numbers = number_equal(["a", *"bcdefgh" * 4, "b", None, None])
    assert runs(numbers, period=3, copies=3) == [Run(1, 30, 7)]
    assert runs(number_equal([None] * 30), period=3, copies=3) == []
    assert runs(number_equal("ab" * 20), period=2, copies=4)[0].copies >= 4
