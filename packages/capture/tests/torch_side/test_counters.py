"""Numbers that optimizers read out of small tensors: no graph break, no compilation for each step, eager's results."""

from __future__ import annotations

import math

import pytest
import torch
from torch.optim.optimizer import _get_value

import fxstack_capture
from fxstack_capture import CaptureOptions


class Backend:
    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph_module, example_inputs):
        self.graphs += 1
        return graph_module.forward


def whole(fn, options=None):
    """``fn`` captured as one graph (a break is an error), and the backend that counts."""
    backend = Backend()
    options = options or CaptureOptions()
    return fxstack_capture.optimize(backend, fullgraph=True, options=options)(fn), backend


def train(name, wrap, count=8, **settings):
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(size)) for size in ((3, 2), (2,))]
    optimizer = getattr(torch.optim, name)(parameters, **settings)
    step = wrap(optimizer.step)
    for _ in range(count):
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        step()
    return parameters, [optimizer.state[p] for p in parameters]


CASES = {
    "radam": ("RAdam", {}, 3),  # the step at which it begins to rectify
    "asgd": ("ASGD", {"t0": 4}, 4),  # the steps at which it begins to average
    "adafactor": ("Adafactor", {}, 2),
    "adafactor_foreach": ("Adafactor", {"foreach": True}, 2),
    "nadam": ("NAdam", {}, 2),
    "fused": ("AdamW", {"fused": True, "amsgrad": True}, 2),
    "tensor_lr": ("Adam", {"lr": torch.tensor(0.1), "foreach": False}, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_optimizer_is_one_graph_whose_steps_share_it(case):
    name, settings, graphs = CASES[case]
    if case == "adafactor_foreach" and torch.__version__ < "2.13":
        pytest.skip("each of its steps is a graph of its own in torch 2.11")
    seen = []

    def wrap(step):
        compiled, backend = whole(step)
        seen.append(backend)
        return compiled

    expected = train(name, lambda step: step, **settings)
    torch.testing.assert_close(train(name, wrap, **settings), expected, rtol=0, atol=0)
    assert seen[0].graphs <= graphs


def steps_of(values, wrap):
    """Adam's parameters after steps at the given counts: one list for each call, with a count for each parameter."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(3)) for _ in values[0]]
    optimizer = torch.optim.Adam(parameters, lr=0.1, foreach=False)
    step = wrap(optimizer.step)
    for counts in ([None] * len(parameters), *values):
        for parameter, count in zip(parameters, counts, strict=True):
            parameter.grad = torch.randn(3)
            if count is not None:
                optimizer.state[parameter]["step"].fill_(count)
        step()
    return parameters


def test_equal_steps_are_one_number_of_the_graph():
    graphs = []

    def wrap(step):
        backend = lambda graph, _: graphs.append(graph.graph) or graph.forward
        return fxstack_capture.optimize(backend, fullgraph=True)(step)

    values = [(3, 3, 3), (4, 4, 4), (4, 9, 4), (5, 10, 5), (7, 7, 7), (1, 2, 3)]
    expected = steps_of(values, lambda step: step)
    torch.testing.assert_close(steps_of(values, wrap), expected, rtol=0, atol=0)
    inputs = [[node.meta["val"] for node in graph.find_nodes(op="placeholder")] for graph in graphs]
    numbers = [sum(isinstance(value, torch.SymFloat) for value in values) for values in inputs]
    assert numbers == [1, 2, 3]  # the first step makes the counts, in plain Python


def counting(x, n, k):
    n += k
    value = _get_value(n)
    return x * value if value > 5 else x - value


@pytest.mark.parametrize("start", [0.0, 4.0, 5.0, 4.5, 2.0**24, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_number_is_that_of_the_tensor_at_every_call(start, dtype):
    compiled = fxstack_capture.optimize(Backend())(counting)
    x = torch.randn(3)
    for first in (1.0, start, 2.0, start):
        n, alternate = torch.tensor(first, dtype=dtype), torch.tensor(first, dtype=dtype)
        expected = counting(x, n, 1)
        torch.testing.assert_close(compiled(x, alternate, 1), expected, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(alternate, n, rtol=0, atol=0, equal_nan=True)


def shared(x, n, view):
    view += 3  # the same memory
    n += 1
    return x * _get_value(n)


def overwritten(x, n, view):
    n.copy_(x.sum())
    return x * _get_value(n)


@pytest.mark.parametrize("program", [shared, overwritten])
def test_what_else_writes_to_the_tensor_is_seen(program):
    compiled, _ = whole(program)
    x = torch.randn(3)
    for start in (1.0, 2.0):
        n, alternate = torch.tensor(start), torch.tensor(start)
        assert torch.equal(compiled(x, alternate, alternate.view(())), program(x, n, n.view(())))


def made(x, n):
    return x * torch.tensor(n), torch.as_tensor(n + 1, dtype=torch.float64)


@pytest.mark.parametrize("numbers", [(2, 3, 4, 5), (0.5, 0.1, 3.0, 1e40)])
def test_tensor_of_a_number_keeps_the_number_symbolic(numbers):
    compiled, backend = whole(made)
    x = torch.randn(3)
    for n in numbers:
        torch.testing.assert_close(compiled(x, n), made(x, n), rtol=0, atol=0)
    assert backend.graphs == 2  # one number, then any


def larger(x, at_least):
    return x * max(at_least, x.norm().item()), x * min(x.sum().item(), at_least)


@pytest.mark.parametrize("data", [[0.25, 0.0], [3.0, 4.0], [math.nan, 1.0]])
def test_extremum_of_what_only_the_graph_knows(data):
    compiled, _ = whole(larger, CaptureOptions(capture_scalar_outputs=True))
    x = torch.tensor(data)
    torch.testing.assert_close(compiled(x, 1.0), larger(x, 1.0), rtol=0, atol=0, equal_nan=True)


def lists(x, y, out):
    torch._foreach_add_([x], 1)
    out.append(y * 2)


def test_lists_of_tensors_that_are_written_to_are_guarded():
    compiled, _ = whole(lists)
    for overlap in (False, True, False):
        results = []
        for run in (lists, compiled):
            memory, out = torch.zeros(4), []
            run(memory[:3], memory[1:] if overlap else torch.zeros(3), out)
            results.append((memory, out))
        torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


def test_a_tensor_that_is_twice_in_a_list_is_written_to_twice():
    compiled = fxstack_capture.optimize(Backend())(lambda x, y: torch._foreach_mul_([x, y, x], 2))
    x, y = torch.ones(3), torch.ones(2)
    compiled(x, y)
    assert (x[0], y[0]) == (4, 2)
