"""Wrapper subclasses through the whole compiler: results, classes, metadata and gradients are eager's."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from wrapper_classes import Programs, Rounded, Scaled, described, two

import fxstack

if TYPE_CHECKING:
    from collections.abc import Callable

program = Programs()


def run(fn: Callable[..., Any], make: Callable[[], tuple[Any, ...]]) -> list[Any]:
    """Two calls with gradients: all that can be seen of them."""
    torch.manual_seed(0)
    args = make()
    seen = []
    for _ in range(2):
        flat = pytree.tree_leaves(fn(*args))
        seen.append([described(value) for value in flat])
        for value in flat:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                value.sum().backward(retain_graph=True)
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    return [*seen, [described(t) for t in tensors], [described(t.grad) for t in tensors if t.is_leaf]]


@program(lambda: (two(3, 4), two(3, 4, seed=1)))
def inference(x, y):
    return x + y, (x * 2).relu(), x.shape, type(x) is TwoTensor, isinstance(x, torch.Tensor)


@program(lambda: (two(3, 4, grad=True), two(3, 4, grad=True, seed=1)))
def training(x, y):
    return (x * y).sin(), x @ y.t(), y.detach() + 1


@program(lambda: (two(3, 4, grad=True), torch.randn(4, requires_grad=True)))
def beside_plain_tensors(x, y):
    return (x * 2).view(-1)[2:], x.t() * 3, (y * 2).sum()


@program(lambda: tuple(Scaled(torch.ones(3, 4) * n, float(n)).requires_grad_() for n in (2, 4)))
def metadata(x, y):
    return x + y, (x * y).exp(), x.scale


@program(lambda: (TwoTensor(two(3, 4), two(3, 4, seed=2)).requires_grad_(),))
def two_levels(x):
    return x * 2, (x.sin() + x).sum(0)


@program(lambda: (two(3, 4, grad=True),))
def intermediates_changed_in_place(x):
    z = x * 1
    z.add_(1)
    z[0].mul_(2)
    return z.sum()


@program(lambda: (torch.randn(2, 3, requires_grad=True), Rounded(torch.randn(3, 3)).requires_grad_()))
def gradients_of_the_outer_operators(x, w):
    return nn.functional.linear(x, w), x @ w


@program(lambda: (torch.linspace(0, 1, 6).view(2, 3).requires_grad_(), two(3, 4, grad=True), two(4)))
def gradients_of_another_class(x, w, b):
    return (x @ w + b).relu(), (x * 2).sum()


@program(lambda: (torch.linspace(0, 1, 4).requires_grad_(), Scaled(torch.ones(3, 4), 2.0)))
def gradients_of_another_class_with_metadata(x, w):
    return w * x


@program(lambda: (two(3, 4, grad=True),))
def casts(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.t()


@program(lambda: (two(3, 4, grad=True).sin(),))
def argument_with_history(x):
    return x * 2


@program(lambda: (two(3, 4),))
def views_of_arguments(x):
    return x.view(12), x[0]


@program(lambda: (two(3, 4),))
def between_breaks(x):
    y = x + 1
    fxstack.graph_break()
    return y * 2, y.sum()


@program(lambda: (two(3), two(3, seed=1)))
def arguments_changed_in_place(x, y):
    x.add_(y)
    y.mul_(x)
    return x.copy_(y * 2)


@program(lambda: (two(3, 4), torch.ones(3, 4)))
def arguments_changed_by_views_and_plain_tensors(x, y):
    x[0].mul_(3)
    return x.copy_(y) + x.t().t()


@program(lambda: (TwoTensor(two(3), two(3, seed=2)),))
def two_levels_changed_in_place(x):
    return x.add_(1) * 2


class _Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(two(4, 4))
        self.bias = nn.Parameter(two(4, seed=3))
        self.register_buffer("scale", two(4, seed=4))

    def forward(self, x):
        return nn.functional.linear(x, self.weight, self.bias).relu() * self.scale


@program(lambda: (two(3, 4), _Layer()))
def parameters_and_buffers(x, layer):
    return layer(x)


@pytest.mark.parametrize(("fn", "make"), program.found)
def test_compiled(fn, make):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("error", UserWarning)
        assert run(fxstack.compile(fn), make) == run(fn, make)


@pytest.mark.parametrize(("fn", "make"), program.found)
def test_captured(fn, make):
    assert run(fxstack.compile(fn, backend="eager"), make) == run(fn, make)


class Growing(Scaled):
    """Made again of its parts it is another: that is against the rules."""

    @staticmethod
    def __tensor_unflatten__(inner, context, _size, _stride):
        return Growing(inner["inner"] + 1, context["scale"])


class Replacing(Scaled):
    """``add_`` stores another inner tensor, ``mul_`` another scale."""

    @staticmethod
    def __tensor_unflatten__(inner, context, _size, _stride):
        return Replacing(inner["inner"], context["scale"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.add_.Tensor:
            args[0].inner = args[0].inner + args[1]
            return args[0]
        if func is torch.ops.aten.mul_.Tensor:
            args[0].scale = args[0].scale * args[1]
            return args[0]
        return super().__torch_dispatch__(func, types, args, kwargs)


class ComesBackPlain(Scaled):
    """Its ``__tensor_unflatten__`` is inherited, and makes an object of the other class."""


REFUSED = {
    "an inner tensor changed in place beside its wrapper": (
        lambda x: (x.a.add_(1), x.mul_(2), x.a + x.b),
        lambda: (two(3),),
    ),
    "one that comes back as another class": (lambda x: x * 2, lambda: (ComesBackPlain(torch.ones(3), 2.0),)),
    "not put together as taken apart": (lambda x: x * 2, lambda: (Growing(torch.ones(3), 2.0),)),
    "made inside, not put together as taken apart": (lambda x: Growing(x, 2.0) * 2, lambda: (torch.ones(3),)),
    "an operator that replaces inner tensors": (
        lambda x: x.add_(1) * 2,
        lambda: (Replacing(torch.ones(3), 1.0),),
    ),
    "an operator that replaces the context": (
        lambda x: x.mul_(2) * 2,
        lambda: (Replacing(torch.ones(3), 1.0),),
    ),
    "one made inside and changed in place": (
        lambda x: TwoTensor(x * 2, x * 3).add_(1),
        lambda: (torch.ones(3),),
    ),
    "a view with a gradient": (lambda x: x.view(12), lambda: (two(3, 4, grad=True),)),
    "jagged": (
        lambda x: (x * 2).values(),
        lambda: (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),),
    ),
    "sparse": (lambda x: (x * 2).to_dense(), lambda: (torch.eye(3).to_sparse(),)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_write_counts_as_a_version(backend):
    def versions(fn):
        x = two(3)
        fn(x)
        return x._version

    def fn(x):
        x.add_(1).mul_(2)

    assert versions(fxstack.compile(fn, backend=backend, fullgraph=True)) == versions(fn) == 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_tensors_inside_of_written_wrappers_are_guarded_against_sharing(backend):
    def fn(x, y):
        x.add_(1)
        return y * 2

    compiled = fxstack.compile(fn, backend=backend, fullgraph=True)
    for shares in (False, True, False):
        y = torch.ones(3)
        x = TwoTensor(y if shares else torch.ones(3), torch.zeros(3))
        assert compiled(x, y).tolist() == [4.0 if shares else 2.0] * 3
    assert fxstack.compile_log(compiled).graph_count == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_compiled_is_eager(name):
    fn, make = REFUSED[name]
    results = [pytree.tree_leaves(f(*make())) for f in (fxstack.compile(fn), fn)]
    assert described_all(results[0]) == described_all(results[1])


def described_all(values):
    return [described(value) for value in values]


def test_a_change_of_metadata_is_another_graph():
    compiled = fxstack.compile(lambda x: x * 2)
    for scale in (2.0, 2.0, 3.0, 5.0, 7.5, 2.0, 3):
        x = Scaled(torch.ones(3), scale)
        assert described(compiled(x)) == described(x * 2)
    x.scale = 11.0
    assert described(compiled(x)) == described(x * 2)


@pytest.mark.parametrize("dynamic", [None, True])
def test_results_beside_symbolic_sizes_have_the_sizes_of_the_call(dynamic):
    fn = lambda x, w: (x @ w, (x @ w).t(), x.shape[0])
    compiled, w = fxstack.compile(fn, dynamic=dynamic), two(3, 2)
    for rows in (2, 3, 5, 3):
        x = torch.linspace(-1, 1, 3 * rows).reshape(rows, 3)
        assert described_all(compiled(x, w)[:2]) == described_all(fn(x, w)[:2])
        assert compiled(x, w)[2] == rows


@torch.no_grad()
def step_down(x):
    x.sub_(0.1)
    return x.sum(), x * 2


def with_gradients_in_part(x):
    with torch.set_grad_enabled(not torch.is_grad_enabled()):
        y = x * 2
    return y, x * 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fn", [step_down, with_gradients_in_part])
@pytest.mark.parametrize("grad_mode", [True, False])
def test_grad_mode_changes_inside(fn, grad_mode):
    seen = []
    for f in (fxstack.compile(fn), fn):
        x = two(3, 4, grad=True)
        with torch.set_grad_enabled(grad_mode):
            results = f(x)
            assert torch.is_grad_enabled() == grad_mode
        for result in results:
            if result.requires_grad:
                result.sum().backward()
        seen.append([described_all(results), described(x), described(x.grad)])
    assert seen[0] == seen[1]


def product(x, y):
    return (x * y).sin()


def test_second_derivatives():
    seen = []
    for fn in (product, fxstack.compile(product)):
        x, y = two(3, grad=True), two(3, grad=True, seed=2)
        (first,) = torch.autograd.grad(fn(x, y).sum(), [x], create_graph=True)
        seen.append([described(g) for g in torch.autograd.grad(first.sum(), [x, y])])
    assert seen[0] == seen[1]


def test_tangents_of_other_metadata():
    seen = []
    for fn in (torch.exp, fxstack.compile(torch.exp), fxstack.compile(lambda x: x.exp())):
        x = Scaled(torch.ones(3), 2.0).requires_grad_()
        (gradient,) = torch.autograd.grad(fn(x), [x], Scaled(torch.ones(3), 4.0))
        seen.append(described(gradient))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.parametrize("create_graph", [False, True])
def test_wrappers_as_gradients_of_plain_results(create_graph):
    seen = []
    for fn in (product, fxstack.compile(product)):
        x, y = (torch.linspace(0, n, 3, requires_grad=True) for n in (1, 2))
        grads = torch.autograd.grad(fn(x, y), [x, y], two(3), create_graph=create_graph)
        seen.append(described_all(grads))
    assert seen[0] == seen[1]


def test_an_optimizer():
    losses = []
    for compiles in (False, True):
        layer = _Layer()
        step = fxstack.compile(layer) if compiles else layer
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = step(two(5, 4)).sum()
            loss.backward()
            optimizer.step()
        losses.append([described(loss), described(layer.weight)])
    assert losses[0] == losses[1]
