"""Wrapper subclasses whose insides, functions and sizes are part of the program: one graph, results as eager's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree
from wrapper_classes import Programs, Quantized, Scaled, Slotted, described, two

import fxstack

if TYPE_CHECKING:
    from collections.abc import Callable

program = Programs()


def plain(grad: bool = False) -> torch.Tensor:
    return torch.linspace(-1, 2, 6).reshape(2, 3).requires_grad_(grad)


def run(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    """One call with gradients: all that can be seen of it."""
    flat = pytree.tree_leaves(fn(*args))
    for value in flat:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            value.sum().backward(retain_graph=True)
    leaves = [arg for arg in pytree.tree_leaves(args) if isinstance(arg, torch.Tensor)]
    return [described(value) for value in (*flat, *leaves, *(t.grad for t in leaves))]


@program(lambda: (two(2, 3),))
def inner_tensors_of_arguments(x):
    return x.a + 1, x.b * x.a, x * 2


@program(lambda: (two(2, 3),))
def inner_tensors_of_results(x):
    return (x * 2).a + 1, x.sin().b


@program(lambda: (plain(), plain()))
def made_for_an_operator(x, y):
    return TwoTensor(x + 1, y) * 2, Scaled(x, 2.0) + Scaled(y, 3.0)


@program(lambda: (plain(),))
def made_and_returned(x):
    made = TwoTensor(x + 1, x * 2)
    made.note = "kept"
    return made, made * 3, made.a, made.note


@program(lambda: (plain(),))
def made_of_wrappers(x):
    made = TwoTensor(Scaled(x, 2.0), Scaled(x + 1, 2.0))
    return made.sin(), made, made.a.inner * 2


@program(lambda: (two(2, 3),))
def taken_apart_and_put_together(x):
    names, context = x.__tensor_flatten__()
    parts = {name: getattr(x, name) + 1 for name in names}
    return TwoTensor.__tensor_unflatten__(parts, context, x.size(), x.stride()) * 2


@program(lambda: (plain(grad=True), Quantized.of(torch.eye(3)), torch.ones(3, requires_grad=True)))
def functions_of_the_class(x, w, b):
    return nn.functional.linear(x, w, b), nn.functional.linear(x, w).relu(), w.note


@program(lambda: (plain(grad=True), Quantized.of(torch.eye(3), "dynamic")))
def functions_that_make_wrappers(x, w):
    return nn.functional.linear(x.sin(), w)


@program(lambda: (plain(), Quantized.of(torch.eye(3))))
def operators_behind_functions(x, w):
    return x @ w, w.sum(0), w.shape, w.dtype, type(w) is Quantized, isinstance(w, torch.Tensor)


@program(lambda: (plain(), Quantized.of(torch.eye(3)), torch.zeros(3)))
def beside_what_is_written_to(x, w, total):
    y = nn.functional.linear(x, w)
    total.add_(y.sum(0))
    return y * total


class _Quantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        return TwoTensor(x.round(), x * 2)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return gradient.a + gradient.b


class _Dequantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> torch.Tensor:
        return x.a + x.b  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return TwoTensor(gradient * 2, gradient * 3)


@program(lambda: (plain(grad=True),))
def through_autograd_functions(x):
    return _Dequantize.apply(_Quantize.apply(x) * 3)


@program(lambda: (plain(grad=True),))
def rounded_in_the_forward_alone(x):
    return x + (Quantized.of(x).dequantize() - x).detach()


@program(lambda: (Slotted(plain(), torch.tensor(2.0), "note"),))
def kept_in_slots(x):
    return x.numbers + 1, x.note, x * 2, (x + 1).numbers


@program(lambda: (plain(),))
def made_with_slots(x):
    made = Slotted(x, x.sum(), 3)
    return made * 2, made.scale * made.note, made


@program(lambda: (Slotted(plain(), torch.tensor(2.0)),))
def asked_once(x):
    return torch.mul(x, 2) * 3, x.sin()


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: Any) -> torch.Tensor:
        ctx.save_for_backward(w)
        return x + (w * 2).numbers  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return gradient * (ctx.saved_tensors[0] * 3).numbers, None


@program(lambda: (plain(grad=True), Slotted(plain(), torch.tensor(2.0))))
def asked_in_autograd_functions(x, w):
    return _Times.apply(x, w)


class Settings(NamedTuple):
    factor: float
    inner: Any = None


class _Configured(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, settings: Settings) -> torch.Tensor:
        ctx.factor = settings.factor
        return Scaled(x * settings.inner.factor, 2.0).inner * settings.factor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return gradient * ctx.factor, None


@program(lambda: (plain(grad=True),))
def wrappers_in_autograd_functions_alone(x):
    return _Configured.apply(x, Settings(3.0, Settings(2.0)))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize(("fn", "make"), program.found)
def test_one_graph(fn, make, backend):
    assert run(fxstack.compile(fn, backend=backend, fullgraph=True), make()) == run(fn, make())


SIZES = {
    "arguments": (lambda x: x * 2 + 1, lambda n: (two(n, 3, grad=True),)),
    "of another class": (lambda x: x.sin() * 2, lambda n: (Scaled(torch.ones(n, 3), 2.0),)),
    "inner tensors": (lambda x: x.a * 2 + x.a.shape[0], lambda n: (two(n, 3),)),
    "made inside": (lambda x: TwoTensor(x, x + 1) * x.shape[0], lambda n: (torch.ones(n, 3),)),
    "beside parameters": (
        lambda x, w: (x @ w).relu(),
        lambda n: (torch.ones(n, 3, requires_grad=True), two(3, 5, grad=True)),
    ),
    "several levels": (
        lambda x: (x * 2).sum(0),
        lambda n: (TwoTensor(two(n, 3), two(n, 3)).requires_grad_(),),
    ),
    "views": (lambda x: x.t().reshape(-1) + 1, lambda n: (two(n, 3, grad=True),)),
}


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", SIZES)
def test_one_graph_for_all_sizes(name, dynamic):
    fn, make = SIZES[name]
    compiled = fxstack.compile(fn, dynamic=dynamic, fullgraph=True)
    for n in (2, 4, 7, 6):
        assert run(compiled, make(n)) == run(fn, make(n))
    assert fxstack.compile_log(compiled).graph_count == (1 if dynamic else 2)


def test_a_dimension_of_a_wrapper_is_marked_for_what_is_inside():
    compiled = fxstack.compile(lambda x: x * 2, fullgraph=True)
    for n in (2, 3, 4):
        x = two(n, 3)
        fxstack.mark_dynamic(x, 0)
        assert described(compiled(x)) == described(x * 2)
    assert fxstack.compile_log(compiled).graph_count == 1


def shared(x, y):
    return x * 2, y.add_(1), x.a + y


def test_tensors_that_are_inside_of_a_wrapper_and_beside_it():
    a, b = torch.arange(3.0), torch.arange(3.0) + 1
    seen = []
    for fn in (shared, fxstack.compile(shared)):
        p, q = a.clone(), b.clone()
        calls = [(TwoTensor(p, q), torch.ones(3)), (TwoTensor(p, q), q), (TwoTensor(p, p), p)]
        seen.append([[described(value) for value in fn(*args)] for args in calls])
    assert seen[0] == seen[1]


class _Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        for layer in (self.first, self.second):
            weight = Quantized.of(layer.weight, "dynamic")
            layer.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.second(nn.functional.gelu(self.first(x)))


def test_a_module_with_quantized_weights():
    torch.manual_seed(0)
    layers = _Layers()
    compiled = fxstack.compile(layers, fullgraph=True)
    for n in (2, 3, 5):
        x = torch.linspace(-1, 1, 3 * n).reshape(n, 3)
        torch.testing.assert_close(compiled(x), layers(x))
    assert fxstack.compile_log(compiled).graph_count == 2
