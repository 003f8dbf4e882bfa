"""Gradients taken inside of a program: one node, and what ``AccumulateGrad`` does with its results."""

from __future__ import annotations

import warnings

import pytest
import torch
from recorder import check, new_trace, trace_calls

import fxstack_capture as fx
from fxstack_capture.breaks import GraphBreak
from fxstack_capture.sources import Local
from fxstack_capture.torch_side.autograd.gradients import with_freed_history


def leaf(*size):
    return torch.randn(*size, requires_grad=True)


def test_grad_is_one_node():
    captured = check(lambda x: torch.autograd.grad((x**3).sum(), x), leaf(3))
    assert captured.targets.count("grad") == 1


def test_grad_of_grad():
    def f(x):
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return torch.autograd.grad((g**2).sum(), x)

    assert check(f, leaf(3)).targets.count("grad") == 2


def backward(loss_of, *leaves):
    trace = new_trace()
    tracer = trace.torch
    inputs = [tracer.enter_tensor(x, Local(f"a{i}")) for i, x in enumerate(leaves)]
    with tracer.session(), tracer.function_mode():
        loss = loss_of(*inputs)
        tracer.call(torch.Tensor.backward, (loss,), {})
    return tracer, inputs, loss


def test_backward_writes_gradients_of_leaves():
    tracer, (x, _w), _ = backward(lambda x, w: (x * w).sum(), leaf(3), torch.ones(3))
    assert [(write.tensor is x, write.name) for write in tracer.attribute_writes] == [(True, "grad")]


def test_backward_guards_that_there_are_no_hooks():
    tracer, _, _ = backward(lambda x: (x * 2).sum(), leaf(3))
    guarded = {g.source.name for g in tracer.trace.guards}
    assert {"a0._backward_hooks", "a0._post_accumulate_grad_hooks"} <= guarded


@pytest.mark.parametrize("retain", [True, False])
def test_history_is_spent_unless_retained(retain):
    trace = new_trace()
    tracer = trace.torch
    x = tracer.enter_tensor(leaf(3), Local("a0"))
    with tracer.session(), tracer.function_mode():
        loss = (x * x).sum()
        tracer.call(torch.Tensor.backward, (loss,), {"retain_graph": retain})
        given, finish = tracer.leaving(loss)
    assert (given is loss) is retain
    assert finish is (None if retain else with_freed_history)


def hooked():
    x = leaf(3)
    x.register_hook(lambda g: g)
    return x


@pytest.mark.parametrize("make", [hooked, lambda: leaf(3) * 2])
def test_what_cannot_be_differentiated_inside(make):
    with pytest.raises(GraphBreak):
        backward(lambda x: (x * 2).sum(), make())


def test_spent_history_raises_as_torch_does():
    x = leaf(3)
    loss = (x * x).sum()
    loss.backward()
    with pytest.raises(RuntimeError) as expected:
        loss.backward()
    with pytest.raises(RuntimeError) as found:
        with_freed_history(torch.ones(())).backward()
    assert str(found.value) == str(expected.value)


def test_tags():
    trace = new_trace()
    tracer = trace.torch
    x = tracer.enter_tensor(leaf(3), Local("a0"))
    with tracer.session(), tracer.function_mode():
        with tracer.checkpoint("must_recompute"):
            y = x.sin().cos()
        tracer.leave_checkpoint([y, 3])
        code = tracer.finish([y.exp()])
    tags = [n.meta.get("recompute") for n in code.graph_module.graph.nodes if "call" in n.op]
    assert tags == ["must_recompute", None, None]
    assert set(code.checkpoints.values()) == {(1, "must_recompute")}
    assert set(code.checkpoints) == {"sin", "cos"}


def test_number_in_a_tensor_without_asking_for_unbacked_symbols():
    trace = new_trace()
    number = trace.torch.number_in(trace.torch.enter_tensor(torch.tensor(2.0), Local("a0")))
    assert type(number) is torch.SymFloat


def test_scalar_arguments_given_as_tensors():
    captured = trace_calls(lambda x, a: x.add(x, alpha=a), torch.ones(3), torch.tensor(2.0))
    assert captured.targets == ["item", "add"]


def calls_of_backward(see):
    class Halves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t * 0.5, t.sin()

        @staticmethod
        def backward(ctx, a, b):
            see.append(a)
            return a * 2 + b

    def fn(x, y):
        _, result = Halves.apply(y)
        return result, torch.autograd.grad((x * x).sum(), x)[0]

    return fn


def test_whether_history_is_spent_is_asked_without_the_program_s_backward():
    seen = []
    compiled = fx.optimize()(calls_of_backward(seen))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result, _ = compiled(leaf(3), leaf(4))
    assert not seen
    result.sum().backward()
    assert len(seen) == 1


def test_a_view_made_without_grad_of_what_changed_leaves_the_graph():
    def fn(z):
        with torch.no_grad():
            view = z.view(-1)
            view.add_(1)
        return z.detach().clone().requires_grad_().sin(), view

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, view = fx.optimize()(fn)(leaf(3))
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        _ = view.grad_fn


def test_a_view_made_without_grad_of_what_changed_is_not_entered():
    base = leaf(3) * 1
    with torch.no_grad():
        view = base.view(-1)
        view.add_(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
            fx.optimize()(lambda t: t * 2)(view)
    with pytest.raises(fx.Unsupported, match="view made under no_grad, whose base was changed"):
        fx.optimize(fullgraph=True)(lambda t: t * 2)(view)


@pytest.mark.filterwarnings("error:internal error")
def test_a_view_without_a_function_leaves_behind_a_gradient():
    """Autograd raises for whoever asks for the function of such a view; its history is not asked for."""

    def program(x, z):
        x.sin().sum().backward(retain_graph=True)
        with torch.no_grad():
            view = z.view(-1)
            view[0] = 1
        return x * 2, view

    for run in (program, fx.optimize()(program)):
        z = torch.zeros(1, 1, requires_grad=True)
        _, view = run(torch.ones(2, requires_grad=True), z)
        assert torch.equal(view.data, torch.ones(1)) and torch.equal(z.data, torch.ones(1, 1))
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            _ = view.grad_fn


@pytest.mark.filterwarnings("error:internal error")
def test_a_number_as_out_ends_the_graph():
    compiled = fx.optimize()(lambda x: x + torch.mul(2, 2, out=2))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 5.0))
