"""Gradients of gradients of compiled graphs: eager's, or an error that says why not."""

import gc
import weakref

import pytest
import torch
from compare import as_graph, compiled, dynamic
from helpers import run_graph, save_everything
from test_semantics import leaf

from fxstack_functionalize import aot, aot_module

FN = torch.nn.functional


def penalised(fn, inputs, order):
    """Gradients of a penalty on gradients, and on theirs, ``order`` times."""
    used = [t for t in inputs if t.requires_grad]
    outputs = fn(*inputs)
    total = sum((y * (n + 1)).sum() for n, y in enumerate(outputs))
    for _ in range(order):
        grads = torch.autograd.grad(total, used, create_graph=True, allow_unused=True)
        total = total + sum(g.pow(2).mean() + g.sin().sum() for g in grads if g is not None)
    leaves = [t for t in inputs if t.is_leaf and t.requires_grad]
    return torch.autograd.grad(total, leaves, allow_unused=True)


def fresh(*shapes):
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]


def same(ours, eager, make, order=2):
    for a, b in zip(penalised(ours, make(), order), penalised(eager, make(), order), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


PROGRAMS = {
    "cubic": lambda x, w: (x**3 @ w,),
    "layer": lambda x, w: (torch.tanh(x @ w), FN.softmax(x, -1)),
    "unused input": lambda x, w: (x.exp(), x.sum()),
    "no second derivative": lambda x, w: (x @ w, x.relu()),
    "output without gradient": lambda x, w: (x.detach() * 2, (x * w.sum()).sin()),
    "views": lambda x, w: (lambda y: (x.sin().t(), y.view(2, 3), y[0], y.cos()))(x @ w),
    "a linear layer on a row": lambda x, w: (FN.linear(x[0], w.t()).sin(), FN.linear(x[1], w.t())),
    "nest": lambda x, w: ({"a": (x.sin() * x).sum()}["a"], (w.cos(),)[0]),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_of_any_order(name, order):
    fn = PROGRAMS[name]
    make = lambda: fresh((3, 4), (4, 2))
    same(compiled(fn, make()), fn, make, order)


def test_input_computed_from_another_input():
    fn = lambda x, y: ((x.sin() * y).sum(),)

    def make():
        (x,) = fresh((3,))
        return [x, x.exp()]

    same(compiled(fn, make()), fn, make)


def test_input_without_gradient():
    fn = lambda x, y: ((x.sin() * y).sum(),)
    make = lambda: [*fresh((3,)), torch.ones(3)]
    same(compiled(fn, make()), fn, make)


def test_parameters_that_the_graph_holds():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    ours = aot_module(module, fw_compiler=run_graph, partitioner=save_everything)
    results = []
    for model in (ours, module):
        module.zero_grad()
        (x,) = fresh((5, 3))
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        g.pow(2).sum().backward()
        results.append([p.grad for p in module.parameters()])
    torch.testing.assert_close(*results)


def test_symbolic_sizes():
    fn = lambda x: ((x**3).sum(0) / x.shape[0],)
    ours = aot(as_graph(fn, 1), dynamic(fresh((4, 3))), fw_compiler=run_graph, partitioner=save_everything)
    for length in (4, 7):
        same(ours, fn, lambda length=length: fresh((length, 3)))


def test_backward_with_create_graph_accumulates():
    fn = lambda x: ((x**3).sum(),)
    for f in (compiled(fn, fresh((3,))), fn):
        (x,) = fresh((3,))
        f(x)[0].backward(create_graph=True)
        first = x.grad
        x.grad = None
        first.sum().backward()
        torch.testing.assert_close(x.grad, 6 * x.detach())


def change(x):
    x.add_(1)
    return ((x**3).sum(),)


def run_refused(reason):
    """Return a leaf, what the graph was called with, and a number computed from its result."""
    fn = REFUSED[reason]
    (x,) = fresh((3, 3))
    argument = x * 1 if fn is change else x
    return x, argument, compiled(fn, [argument])(argument)[0].sum()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("create_graph", [False, True])
def test_several_gradients_at_once(name, create_graph):
    fn = PROGRAMS[name]

    def gradients(f):
        inputs = fresh((3, 4), (4, 2))
        output = next(y for y in f(*inputs) if y.requires_grad).flatten()
        ways = torch.eye(output.numel())
        options = {"is_grads_batched": True, "create_graph": create_graph, "allow_unused": True}
        found = torch.autograd.grad(output, inputs, ways, **options)
        return [(g if g is None else g.detach()) for g in found], [
            getattr(g, "requires_grad", 0) for g in found
        ]

    ours, theirs = gradients(compiled(fn, fresh((3, 4), (4, 2)))), gradients(fn)
    assert ours[1] == theirs[1]
    for a, b in zip(ours[0], theirs[0], strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("map_gradients", [False, True])
def test_several_gradients_of_what_cannot_be_run_again(map_gradients):
    def gradients(f):
        torch.manual_seed(0)
        (x,) = fresh((3,))
        (y,) = f(x)
        if map_gradients:
            return torch.vmap(lambda v: torch.autograd.grad(y, x, v)[0])(torch.eye(3))
        return torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)[0]

    torch.testing.assert_close(gradients(compiled(dropped, fresh((3,)))), gradients(dropped))


def dropped(x):
    return (FN.dropout(x**3, 0.5),)


def test_several_gradients_of_what_cannot_be_run_again_are_not_differentiated():
    (x,) = fresh((3,))
    (y,) = compiled(dropped, [x])(x)
    with pytest.raises(RuntimeError, match=r"several gradients at once(?s:.)*random numbers"):
        torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True, create_graph=True)


REFUSED = {"random numbers": lambda x: (FN.dropout(x**3, 0.5),), "changes its inputs": change}


@pytest.mark.parametrize("reason", REFUSED)
@pytest.mark.parametrize("penalty", [lambda g: g.pow(2).sum(), lambda g: g.sum()])
@pytest.mark.parametrize("directly", [True, False])
def test_what_cannot_be_run_again_says_so(reason, penalty, directly):
    x, _argument, total = run_refused(reason)
    (grad,) = torch.autograd.grad(total, x, create_graph=True)
    with pytest.raises(RuntimeError, match=f"cannot be differentiated again(?s:.)*{reason}"):
        if directly:
            torch.autograd.grad(penalty(grad), x)
        else:
            penalty(grad).backward()


@pytest.mark.parametrize("reason", REFUSED)
def test_the_first_derivative_is_right_all_the_same(reason):
    torch.manual_seed(0)
    x, _argument, total = run_refused(reason)
    (plain,) = torch.autograd.grad(total, x, retain_graph=True)
    (recorded,) = torch.autograd.grad(total, x, create_graph=True)
    assert torch.equal(plain, recorded)


def test_input_changed_in_place_before_the_second_backward():
    fn = lambda x, w: ((x.sin() * w).sum(),)
    for f in (compiled(fn, fresh((3,), (3,))), fn):
        x, w = fresh((3,), (3,))
        y = f(x, w)[0]
        with torch.no_grad():
            w.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(y, x, create_graph=True)


def adapted(fn, make, backward):
    """Steps of gradient descent on weights that are no leaves, on data of which nothing is kept, and a loss."""
    (w,) = weights = make()
    for step in range(3):
        loss = fn(w, torch.full((2, 3), step + 1.0))[0].sum()
        backward(loss)
        (g,) = torch.autograd.grad(loss, w, create_graph=True)
        w = w - 0.1 * g
        del loss, g
    gc.collect()
    return torch.autograd.grad(fn(w, torch.ones(2, 3))[0].sum(), weights)


ONE_RESULT = lambda w, x: ((w + x).sin() * x,)
SEVERAL = lambda w, x: ((w + x).sin() * x, (w * 2).exp())
LINKED = lambda w, x: (lambda y: (y.pow(2), y))((w + x).sin())


@pytest.mark.parametrize("fn", [ONE_RESULT, SEVERAL, LINKED])
@pytest.mark.parametrize("backward", [lambda _: None, lambda loss: loss.backward(retain_graph=True)])
def test_inputs_that_only_the_graph_holds(fn, backward):
    make = lambda: fresh((2, 3))
    f = compiled(fn, [*make(), torch.ones(2, 3)])
    torch.testing.assert_close(adapted(f, make, backward), adapted(fn, make, backward))


@pytest.mark.parametrize("fn", [ONE_RESULT, SEVERAL, LINKED])
def test_a_backward_frees_the_inputs(fn):
    f = compiled(fn, [*fresh((2, 3)), torch.ones(2, 3)])
    w, x = fresh((2, 3))[0], torch.ones(2, 3)
    made, known = w * 1, weakref.ref(x)
    results = f(made, x)
    sum(y.sum() for y in results).backward()
    del x
    gc.collect()
    assert known() is None


MATRIX = torch.tensor([[4.0, 1, 0], [1, 3, 1], [0, 1, 5]])
CHECKED = {
    "inv": torch.linalg.inv,
    "cholesky": torch.linalg.cholesky,
    "solve": lambda a: torch.linalg.solve(a, a.sin()),
    "lu_factor": lambda a: torch.linalg.lu_factor(a)[0],
    "cholesky_solve": lambda a: torch.cholesky_solve(a.sin(), torch.linalg.cholesky(a)),
    "binary_cross_entropy": lambda a: FN.binary_cross_entropy(a.sigmoid(), a.detach() / 5, reduction="none"),
    "_assert_async": lambda a: (torch._assert_async(a.sum() > 0), a.pow(3))[1],
}


@pytest.mark.parametrize("name", CHECKED)
def test_a_graph_that_checks_its_data_runs_again(name):
    fn = lambda a: (CHECKED[name](a),)
    make = lambda: [MATRIX.clone().requires_grad_()]
    same(compiled(fn, make()), fn, make, 1)


def test_inference_tensor_as_input():
    with torch.inference_mode():
        data = torch.ones(3)
    fn = lambda x, y: (x + y,)
    x = leaf(3)
    compiled(fn, [x, data])(x, data)[0].sum().backward()
    assert torch.equal(x.grad, torch.ones(3))
