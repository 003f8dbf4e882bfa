"""Autograd's own rules around a compiled backward."""

import gc
import weakref

import pytest
import torch
from compare import as_graph, check, compiled
from helpers import run_graph, save_everything
from test_semantics import A, leaf, mk, nonleaf

from fxstack_functionalize import aot


def both(fn, x):
    return [(f, x.detach().clone().requires_grad_()) for f in (compiled(fn, [x]), fn)]


def test_saved_input_changed_before_backward():
    for f, x in both(lambda x: (x * x,), leaf(3)):
        y = f(x)[0]
        with torch.no_grad():
            x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_saved_view_of_input_changed_before_backward():
    for f, x in both(lambda x: (x.t() @ x.t(),), leaf(3, 3)):
        y = f(x)[0]
        with torch.no_grad():
            x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_saved_output_changed_before_backward():
    for f, x in both(lambda x: (x.exp(),), leaf(3)):
        y = f(x)[0]
        y.detach().add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_input_changed_by_the_graph_itself():
    check(lambda x, y: (x.mul_(y), x + 1), lambda: (nonleaf(3, 4), leaf(3, 4)))
    check(
        lambda x, y: ((x.exp() * y).sum(), x.detach().sin(), x.add_(1).sum())[:2],
        lambda: (leaf(3, grad=False), leaf(3)),
    )


def test_missing_gradients_stay_missing():
    fn = lambda x, y: (x * 2, y * 3, (x * y).sum())
    for f in (compiled(fn, (leaf(3), leaf(3))), fn):
        x, y = leaf(3), leaf(3)
        f(x, y)[0].sum().backward()
        assert y.grad is None
        assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_backward_twice():
    for f, x in both(lambda x: (x * x,), leaf(3)):
        y = f(x)[0].sum()
        y.backward(retain_graph=True)
        y.backward()
        assert torch.equal(x.grad, 4 * x)
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()


FAILURES = []


def _message(call):
    with pytest.raises(RuntimeError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("retain", [True, False])
def test_backward_after_one_that_raised(retain):
    """The saved tensors of what ran are gone, unless they were to be kept."""

    def fails_in_backward(module, example_inputs):
        return lambda *args: 1 / 0 if FAILURES.pop() else module.forward(*args)

    x = leaf(3)
    step = compiled(lambda x: (x.sin().exp(),), [x])
    failing = aot(
        as_graph(lambda x: (x.sin().exp(),), 1),
        [x],
        fw_compiler=run_graph,
        bw_compiler=fails_in_backward,
        partitioner=save_everything,
    )
    FAILURES[:] = [False, True]
    y = failing(x)[0].sum()
    with pytest.raises(ZeroDivisionError):
        y.backward(retain_graph=retain)
    if retain:
        y.backward()
        assert torch.equal(x.grad, torch.autograd.grad(step(x)[0].sum(), x)[0])
    else:
        z = step(x)[0].sum()
        z.backward()
        assert _message(y.backward) == _message(z.backward)


def test_partial_gradients():
    fn = lambda x, y: (x * y,)
    x, y = leaf(3), leaf(3)
    (gx,) = torch.autograd.grad(compiled(fn, (x, y))(x, y)[0].sum(), [x])
    assert torch.equal(gx, y)


def test_hooks_on_outputs_and_leaves():
    for f, x in both(lambda x: (x * 2,), leaf(3)):
        seen = []
        x.register_hook(lambda g: seen.append(g.clone()))
        y = f(x)[0]
        y.register_hook(lambda g: g * 10)
        y.sum().backward()
        assert torch.equal(seen[0], torch.full((3,), 20.0))


@pytest.mark.parametrize("shape", [lambda g: g.expand(3, 4), lambda g: torch.ones(4, 3).t()])
def test_gradients_of_any_layout(shape):
    for f, x in both(lambda x: (x.sin(),), leaf(3, 4)):
        f(x)[0].backward(shape(torch.ones(())))
        torch.testing.assert_close(x.grad, x.detach().cos())


def test_a_gradient_that_another_tensor_holds_is_copied():
    """Of a result with permuted dimensions, too: the gradient of a leaf is the incoming gradient here."""
    for f, x in both(lambda x: (x + 1,), leaf(3, 4).t()):
        incoming = torch.ones(3, 4).t()
        f(x)[0].backward(incoming)
        x.grad.zero_()
        assert incoming.sum() == 12


def test_memory_is_freed_after_backward():
    alive = []

    def watch(module, example_inputs):
        def run(*args):
            results = module.forward(*args)
            alive.extend(weakref.ref(t) for t in results if isinstance(t, torch.Tensor))
            return results

        return run

    x = torch.randn(50, 50, requires_grad=True)
    f = compiled(lambda x: ((x.sin() @ x.exp()).t().tanh(),), [x], compiler=watch)
    gc.collect()
    gc.disable()
    try:
        y = f(x)[0]
        y.sum().backward()
        x.grad = None
        del y
        assert [r for r in alive if r() is not None] == []
        f(x)
        assert [r for r in alive if r() is not None] == []
    finally:
        gc.enable()


def test_anomaly_mode():
    with torch.autograd.detect_anomaly(check_nan=False):
        check(lambda x: (x.sin(),), mk(A))


def complex_leaf(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 3, dtype=torch.complex64, generator=generator).requires_grad_()


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: (a.conj() @ b,),
        lambda a, b: (a.mH @ b.conj(), a.imag * 2),
        lambda a, b: (torch.view_as_real(a) * torch.view_as_real(b).exp(),),
        lambda a, b: (torch.linalg.solve(a, b),),
        lambda a, b: (lambda y: (y, y.conj() @ y))(a @ b),
    ],
)
def test_saved_conjugates_and_real_views(fn):
    check(fn, lambda: (complex_leaf(0), complex_leaf(1)), tol=1e-5, poke=False)


def test_saved_conjugate_of_input_changed_before_backward():
    for f in (compiled(lambda x: (x.conj() @ x,), (complex_leaf(0),)), lambda x: (x.conj() @ x,)):
        x = complex_leaf(0)
        y = f(x)[0]
        with torch.no_grad():
            x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.real.sum().backward()
