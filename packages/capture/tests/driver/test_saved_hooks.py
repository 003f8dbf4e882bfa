"""Saved-tensor hooks that a program makes anew in every step: one graph, and the hooks of the step at hand."""

from functools import partial

import pytest
import torch
from counting import Counting
from same import difference
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import fxstack_capture as fx

STEPS = 10


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, tensor):
        return tensor * self.factor

    def pack(self, tensor):
        return tensor * self.factor

    def unpack(self, tensor):
        return tensor / self.factor


def closures(factor):
    return saved_tensors_hooks(lambda t: t * factor, lambda t: t + factor)


def defaults(factor):
    return saved_tensors_hooks(lambda t, k=factor: t * k, lambda t, k=factor: t + k)


def methods(factor):
    made = Scaled(factor)
    return saved_tensors_hooks(made.pack, made.unpack)


def callables(factor):
    return saved_tensors_hooks(Scaled(factor), Scaled(2.0))


def partials(factor):
    return saved_tensors_hooks(partial(torch.mul, other=factor), partial(torch.add, other=factor))


def kept(factor):
    values = []
    return saved_tensors_hooks(lambda t: values.append(t * factor) or len(values) - 1, values.__getitem__)


def on_cpu(_factor):
    return save_on_cpu()


def around(make):
    def steps(f, x, factor):
        with make(factor):
            return f(x)

    return steps, lambda x: (x * x).sin() * x.exp()


def gradient(steps, f, factor):
    x = torch.linspace(0.1, 1, 4, requires_grad=True)
    y = steps(f, x, factor)
    y.sum().backward()
    return y.detach(), x.grad


MAKERS = [closures, defaults, methods, callables, partials, kept, on_cpu]


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("make", MAKERS)
def test_one_graph(make, changing):
    backend = Counting()
    steps, f = around(make)
    compiled = fx.optimize(backend)(f)
    for number in range(STEPS):
        factor = 2.0 + number * changing
        expected, found = gradient(steps, f, factor), gradient(steps, compiled, factor)
        assert difference(found, expected) is None
    assert len(backend.graphs) == 1


@pytest.mark.parametrize("make", MAKERS)
def test_entered_inside(make):
    """The graph breaks where hooks are entered; what follows is compiled once."""

    def f(x):
        with make(2.0):
            y = (x * x).sin() * x.exp()
        return y * 2

    backend = Counting()
    compiled = fx.optimize(backend)(f)
    counts = []
    for _ in range(STEPS):
        expected = gradient(lambda f, x, _: f(x), f, 0)
        assert difference(gradient(lambda f, x, _: f(x), compiled, 0), expected) is None
        counts.append(len(backend.graphs))
    assert counts[0] == counts[-1] <= 2


def inner_gradient(x):
    (found,) = torch.autograd.grad((x * x).sum(), x)
    return found * x


def inner_backward(x):
    z = x.detach().clone().requires_grad_()
    (z * z).sum().backward()
    return z.grad * x


def which_hooks(x):
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return x * x * (2 if hooks is None else 3)


@pytest.mark.parametrize("f", [inner_gradient, inner_backward, which_hooks])
def test_what_sees_the_hooks(f):
    """Gradients that are taken inside pack and unpack what they need; between steps with hooks are some without."""
    compiled = fx.optimize(lambda graph_module, _: graph_module.forward)(f)
    for number in range(6):
        steps, _ = around(closures) if number % 2 else (lambda f, x, _: f(x), None)
        expected = gradient(steps, f, 2.0 + number)
        assert difference(gradient(steps, compiled, 2.0 + number), expected) is None


def recomputed(f, sizes):
    """Call ``f`` under checkpoints, then run the backwards; the number of calls of each graph so far, twice."""
    ran = []

    def backend(graph_module, _):
        return lambda *args: ran.append(id(graph_module)) or graph_module.forward(*args)

    compiled = fx.optimize(backend)(f)
    inputs = [torch.linspace(0, 1, size, requires_grad=True) for size in sizes]
    results = [checkpoint(compiled, x, use_reentrant=False) for x in inputs]
    forward = [*ran]
    for result in results:
        result.sum().backward()
    return forward, ran[len(forward) :], [x.grad for x in inputs]


def test_recomputations_run_the_graphs_of_their_forwards():
    """The second size makes a graph for all sizes, which accepts the first size too."""
    forward, again, _ = recomputed(lambda x: (x * x).sin() * x.exp(), (3, 5, 7, 3))
    assert forward == again
    assert len({*forward}) == 2


def test_side_effects_under_a_checkpoint_run_in_plain_python():
    """The first call of a size fills a table, its recomputation reads the table."""
    tables = {}

    def f(x):
        if x.shape[0] not in tables:
            tables[x.shape[0]] = torch.linspace(0, 1, x.shape[0])
        return x.sin() * tables[x.shape[0]] * x

    forward, again, found = recomputed(f, (3, 5, 3))
    assert forward == again == []
    expected = [x.cos() * t * x + x.sin() * t for n in (3, 5, 3) for x, t in [(torch.linspace(0, 1, n),) * 2]]
    assert difference(found, expected) is None
