"""Shared regions: equal parts of a captured graph are found, traced once and called, with the results of the parts alone."""

import torch
from helpers import run_graph, save_everything
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


def symbolic(fn, count):
    """The graph of a function of ``count`` tensors."""
    names = ", ".join(f"x{number}" for number in range(count))
    return symbolic_trace(eval(f"lambda {names}: fn({names})", {"fn": fn}))  # noqa: S307


def captured(fn, *inputs):
    """The captured graph of a function of tensors, and its fake inputs."""
    module = symbolic(fn, len(inputs))
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
    """Layers with weights of their own."""

    def fn(x, *weights):
        for number in range(count):
            x = layer(x, weights[2 * number], weights[2 * number + 1])
        return x

    return fn


def inputs():
    torch.manual_seed(0)
    return [torch.randn(16, 16, requires_grad=True) for _ in range(21)]


def compile_and_run(fn, *, share, grad=True):
    """Results, gradients, the records of the regions, and the graphs that were compiled."""
    graphs, records, values = [], [], inputs()
    torch.manual_seed(0)

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
    assert shared_calls(stack(layer), grad=False) == [
        (4, True)
    ]  # in the first layer the operand has a gradient


def test_few_or_short_parts_are_untouched():
    assert shared_calls(stack(layer, MIN_COPIES - 1)) == []
    assert shared_calls(stack(lambda x, w, _v: torch.sin(x @ w), 10)) == []


def test_two_runs_of_equal_parts_share_one_body():
    def fn(x, *weights):
        return stack(layer)(stack(layer)(x, *weights).exp().log(), *weights[10:])

    assert shared_calls(fn) == [(10, True)]


def test_parts_that_would_add_terms_of_a_gradient_in_another_order_are_not_shared():
    def twice(x, weights):
        return layer(x, *weights) * weights[1].sum() + weights[1]

    def fn(x, *weights):
        for _ in range(5):
            x = twice(x, weights[:2])
        return x

    assert shared_calls(fn) == []


def test_tied_matrices_are_not_shared():
    def fn(x, w, v, *_):
        for _ in range(5):
            x = layer(x, w, v)
        return x

    assert "matrix product" in refusals(fn)


def test_parts_that_draw_random_numbers_draw_those_of_the_parts_alone():
    assert shared_calls(stack(lambda x, w, v: F.dropout(layer(x, w, v), 0.5))) == [(5, True)]


def test_a_part_that_ends_in_a_product_is_not_shared():
    assert "product" in refusals(stack(lambda x, w, v: layer(x, w, v) @ w))


def test_the_last_part_may_get_a_gradient_of_another_layout():
    records, _ = check(lambda *inputs: stack(layer)(*inputs).sum(0))
    assert [each.calls for each in records if not each.refusal] == [4]
    assert "layout" in " ".join(each.refusal or "" for each in records)


def with_end(end):
    """Layers that end in a function of one tensor."""
    return stack(lambda x, w, v: end(layer(x, w, v)))


def test_a_sum_whose_order_depends_on_other_nodes_of_its_kernel_is_not_shared():
    reason = "the terms of a sum next to its boundary"
    assert reason in refusals(lambda *inputs: stack(layer)(*inputs).sum())  # over two dimensions
    assert reason in refusals(with_end(lambda y: y - y.mean()))
    assert reason in refusals(with_end(lambda y: y.cumsum(0)))
    assert reason in refusals(
        with_end(lambda y: y - y.mean(0))
    )  # its gradient is constant along the summed rows


def test_runs():
    numbers = number_equal(["a", *"bcdefgh" * 4, "b", None, None])
    assert runs(numbers, period=3, copies=3) == [Run(1, 30, 7)]
    assert runs(number_equal([None] * 30), period=3, copies=3) == []
    assert runs(number_equal("ab" * 20), period=2, copies=4)[0].copies >= 4
