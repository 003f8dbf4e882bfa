"""``torch.func`` inside compiled functions: vmap, gradients, Jacobians, forward mode, and what they are made of."""

import sys

import pytest
import torch
from beside_eager import Programs, attempt
from torch import nn
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.autograd import forward_ad
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn import functional as F

import fxstack

program = Programs()


def data(*sizes):
    return [torch.randn(*size) for size in sizes]


def twice(c, fn, *args, **options):
    """The results of two calls of the compiled function: the first compiles, the second checks guards."""
    compiled = c(fn, **options) if options else c(fn)
    return compiled(*args), compiled(*args)


# --- vmap ----------------------------------------------------------------------------------------


@program(breaks=0)
def vmap_over_one_of_two(c):
    x, w = data((3, 4), (4, 5))
    return twice(c, lambda x, w: vmap(lambda row, w: row @ w, in_dims=(0, None))(x, w), x, w)


@program(breaks=0)
def vmap_with_dims_of_containers(c):
    x, y = data((3, 4), (4, 3))
    fn = vmap(lambda d, k: {"a": d["x"] * k, "b": d["y"]}, ({"x": 0, "y": 1}, None), {"a": 1, "b": 0})
    return twice(c, lambda x, y: fn({"x": x, "y": y}, 2.5), x, y)


@program(breaks=0)
def vmap_nested_with_a_closure(c):
    x, y = data((3, 4), (2, 4))
    return twice(c, lambda x, y: vmap(lambda a: vmap(lambda b: (a * b).sum())(y))(x), x, y)


@program(breaks=0)
def vmap_in_chunks(c):
    return twice(c, vmap(lambda a: a.cumsum(0) * 2, chunk_size=2), *data((5, 3)))


@program(breaks=0)
def vmap_with_new_tensors_inside(c):
    def row(a):
        return a + torch.tensor([1.0, 2.0, 3.0]) + torch.arange(3) + torch.ones_like(a)

    return twice(c, vmap(row), *data((4, 3)))


@program(breaks=0)
def vmap_writes_in_place(c):
    def row(a):
        b = a.clone()
        b[1:] += 2
        return b.mul_(a)

    return twice(c, vmap(row), *data((4, 3)))


@program()
def vmap_writes_to_its_argument(c):
    (x,) = data((4, 3))
    return twice(c, vmap(lambda a: a.add_(1) * 2), x), x


@program(breaks=0)
def vmap_draws_different_numbers(c):
    return twice(c, vmap(lambda a: a + torch.rand(3), randomness="different"), *data((4, 3)))


@program(breaks=0)
def vmap_draws_the_same_numbers(c):
    return twice(c, vmap(lambda a: F.dropout(a, 0.5), randomness="same"), *data((4, 3)))


@program()
def vmap_must_not_draw(c):
    return attempt(c(vmap(lambda a: a + torch.rand(3))), *data((4, 3)))


@program()
def vmap_of_sizes_that_differ(c):
    return attempt(c(lambda x, y: vmap(torch.add)(x, y)), *data((4, 3), (5, 3)))


@program()
def vmap_of_wrong_dims(c):
    return attempt(c(lambda x: vmap(torch.sin, in_dims=3)(x)), *data((4, 3)))


@program()
def vmap_of_what_needs_the_data(c):
    return attempt(c(vmap(lambda a: a * 2 if a.sum() > 0 else a)), *data((4, 3)))


@program()
def vmap_around_a_graph_break(c):
    seen = []

    def row(a):
        print(end="", file=sys.stderr)
        seen.append(1)
        return a * 2

    return twice(c, lambda x: vmap(row)(x + 1) - 1, *data((4, 3))), seen


@program(breaks=0)
def vmap_of_several_sizes(c):
    fn = c(vmap(lambda a: F.softmax(a, 0).sum() * a.shape[0]))
    return [fn(x) for x in data((4, 3), (5, 3), (6, 7), (2, 9))]


@program(breaks=0)
def vmap_with_side_effects_of_its_function(c):
    seen = []

    def row(a):
        seen.append(a.dim())
        return a * 2

    return twice(c, vmap(row), *data((4, 3))), seen


# --- gradients -----------------------------------------------------------------------------------


@program(breaks=0)
def grad_of_several_arguments(c):
    fn = grad(lambda a, b, k: (a * b).sin().sum() * k, argnums=(0, 1))
    return twice(c, lambda a, b: fn(a, b, 3.0), *data((3,), (3,)))


@program(breaks=0)
def grad_with_auxiliary_results(c):
    fn = grad_and_value(lambda a: ((a * a).sum(), {"seen": a + 1}), has_aux=True)
    return twice(c, fn, *data((3,)))


@program(breaks=0)
def grad_of_grad_under_no_grad(c):
    def fn(x):
        with torch.no_grad():
            return grad(lambda a: grad(lambda b: (b**3).sum())(a).sum())(x)

    return twice(c, fn, *data((3,)))


@program(breaks=0)
def grad_with_no_grad_inside(c):
    def loss(a):
        with torch.no_grad():
            b = a * 2
        return (a * b).sum()

    return twice(c, grad(loss), *data((3,)))


@program(breaks=0)
def grad_of_what_requires_grad_itself(c):
    x, w = data((3, 4), (4, 4))
    x.requires_grad_()
    w.requires_grad_()
    fn = c(lambda x, w: grad(lambda a: (a @ w).tanh().sum())(x) * 2)
    fn(x, w).sum().backward()
    fn(x, w).pow(2).sum().backward()
    return x, w


@program()
def grad_of_what_is_no_scalar(c):
    return attempt(c(grad(lambda a: a * 2)), *data((3,)))


@program(breaks=0)
def grad_where_an_input_is_not_used(c):
    return twice(c, grad(lambda a, b: a.sum(), argnums=(0, 1)), *data((3,), (3,)))


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 100


@program(breaks=0)
def grad_of_a_custom_function(c):
    return twice(c, lambda x: vmap(grad(lambda a: Cube.apply(a).sum()))(x), *data((4, 3)))


@program()
def grad_of_a_custom_function_with_a_gradient_outside(c):
    (x,) = data((4, 3))
    x.requires_grad_()
    c(lambda x: grad(lambda a: Cube.apply(a * 2).sum())(x))(x).sum().backward()
    return x


@program(breaks=0)
def vjp_called_afterwards(c):
    def fn(x, v):
        out, back = vjp(lambda a: (a.sin(), a * 2), x)
        return out, back((v, v)), back((v * 2, v))

    return twice(c, fn, *data((3,), (3,)))


@program(breaks=0)
def vjp_of_many_cotangents(c):
    def fn(x, vs):
        out, back = vjp(lambda a: a.exp(), x)
        return vmap(back)(vs)

    return twice(c, fn, *data((3,), (5, 3)))


@program()
def vjp_whose_function_leaves(c):
    out, back = c(lambda x: vjp(torch.sin, x))(*data((3,)))
    return out, back(torch.ones(3))


@program(breaks=0)
def jvp_of_a_network(c):
    model = nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Linear(3, 3))
    return twice(c, lambda x, v: jvp(model, (x,), (v,)), *data((2, 4), (2, 4)))


@program()
def jvp_through_tangents_known_to_be_zero(c):
    model = nn.LayerNorm(3)
    return twice(c, lambda x, v: jvp(model, (x,), (v,)), *data((2, 3), (2, 3)))


@program(breaks=0)
def jacobians(c):
    def fn(x):
        return jacrev(torch.tanh)(x), jacfwd(lambda a: (a * a.sum()).exp())(x)

    return twice(c, fn, *data((3,)))


@program(breaks=0)
def hessian_of_a_loss(c):
    return twice(c, hessian(lambda a: (a.sin() * a.roll(1)).sum()), *data((3,)))


@program(breaks=0)
def jacobian_of_a_vmap(c):
    return twice(c, lambda x: jacrev(vmap(lambda a: (a * a).sum()))(x), *data((3, 2)))


@program(breaks=0)
def jacobian_in_chunks_with_auxiliary_results(c):
    fn = jacrev(lambda a: (a.sin(), a * 3), has_aux=True, chunk_size=2)
    return twice(c, fn, *data((4,)))


@program(breaks=0)
def forward_mode_by_hand(c):
    def fn(x, v):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, v)
            return tuple(forward_ad.unpack_dual(dual.sin() * x))

    return twice(c, fn, *data((3,), (3,)))


@program()
def linearize_and_apply(c):
    def fn(x, v):
        out, push = linearize(lambda a: a.sin() * 2, x)
        return out, push(v)

    return twice(c, fn, *data((3,), (3,)))


@program(breaks=0)
def functionalize_inside(c):
    return twice(c, functionalize(lambda a: a.clone().add_(1).view(-1)), *data((3, 2)))


# --- modules -------------------------------------------------------------------------------------


@program(breaks=0)
def gradients_per_sample(c):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params, x, y):
        out = functional_call(model, params, (x[None],))
        return F.cross_entropy(out, y[None])

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))
    return twice(c, per_sample, params, torch.randn(3, 1, 4, 4), torch.tensor([0, 1, 1]))


@program(breaks=0)
def model_ensemble(c):
    models = [nn.Linear(3, 2) for _ in range(4)]
    params, buffers = stack_module_state(models)

    def call(params, buffers, x):
        return functional_call(models[0], (params, buffers), (x,))

    fn = c(lambda x: vmap(call, in_dims=(0, 0, None))(params, buffers, x))
    out = fn(torch.randn(5, 3))
    out.sum().backward()
    return out, params


@program(breaks=0)
def model_ensemble_of_a_model_without_data(c):
    models = [nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)) for _ in range(3)]
    params, buffers = stack_module_state(models)
    base = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to("meta")

    def call(params, buffers, x):
        return functional_call(base, (params, buffers), (x,)).square().mean()

    def fn(params, x):
        return vmap(grad(call), in_dims=(0, None, None))(params, {}, x), vmap(call, (0, None, None))(
            params, {}, x
        )

    return twice(c, fn, {name: value.detach() for name, value in params.items()}, torch.randn(5, 3)), buffers


@program(breaks=0)
def functional_call_keeps_the_module(c):
    model = nn.BatchNorm1d(3)
    state = {name: t.detach() + 1 for name, t in model.state_dict(keep_vars=True).items()}
    return twice(c, lambda x: functional_call(model, state, (x,)), *data((4, 3))), model, state


@program(breaks=0)
def training_with_a_functional_gradient(c):
    model = nn.Linear(3, 2)
    params = {name: p.detach().clone() for name, p in model.named_parameters()}

    def step(params, x):
        grads, loss = grad_and_value(lambda p: functional_call(model, p, x).pow(2).sum())(params)
        return {name: p - 0.1 * grads[name] for name, p in params.items()}, loss

    step = c(step)
    losses = []
    for _ in range(3):
        params, loss = step(params, torch.ones(4, 3))
        losses.append(loss)
    return params, losses


@program(breaks=0, backend="eager")  # which rounds as eager does
def gradients_under_autocast(c):
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            return grad(lambda a: (model(a) @ a.T).tanh().sum())(x) @ x.T

    return twice(c, fn, *data((3, 4)))


@program(breaks=0)
def double_precision_by_default(c):
    def fn(x):
        torch.set_default_dtype(torch.float64)
        try:
            return vmap(lambda a: a + torch.ones(3))(x)
        finally:
            torch.set_default_dtype(torch.float32)

    return twice(c, fn, *data((2, 3)))


# --- tangents that are zero ----------------------------------------------------------------------


def norms():
    """Modules whose parameters, and some of whose values, have no tangent."""
    return {
        "layer": nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)),
        "batch": nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4)).eval(),
        "group": nn.GroupNorm(2, 4),
    }


@program(breaks=0)
def jvp_through_norms(c):
    (x,) = data((3, 4))
    return [twice(c, lambda x, m=m: jvp(m, (x,), (x,)), x) for m in norms().values()]


@program(breaks=0)
def jacobians_through_norms(c):
    (x,) = data((2, 4))
    return [c(lambda x, m=m: jacfwd(m)(x))(x) for m in norms().values()]


@program(breaks=0)
def hessian_through_a_norm(c):
    model = norms()["layer"]
    return c(lambda x: hessian(lambda a: model(a).tanh().sum())(x))(*data((2, 4)))


@program(breaks=0, backend="eager")
def zeros_times_infinity(c):
    scale = torch.tensor([1.0, float("inf"), float("nan"), 0.0])
    fn = c(lambda x: jvp(lambda a: F.layer_norm(a * scale, (4,), scale, scale), (x,), (x,)))
    return fn(*data((3, 4)))


# --- indices that vmap maps over -----------------------------------------------------------------


def mapped_over_indices(fn, *sizes):
    for place in reversed(range(len(sizes))):
        fn = vmap(fn, in_dims=tuple(0 if i == place else None for i in range(len(sizes))))
    with TransformGetItemToIndex():
        return fn(*map(torch.arange, sizes))


@program(breaks=0)
def masks_of_documents(c):
    def masked(x, document):
        same = mapped_over_indices(lambda b, q, k: (q >= k) & (document[b, q] == document[b, k]), 2, 4, 4)
        return x.masked_fill(~same, -1.0)

    x, document = torch.randn(2, 4, 4), torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    return twice(c, masked, x.requires_grad_(), document)


@program(breaks=0)
def items_of_tensors_under_the_mode_of_indices(c):
    def fn(x):
        with TransformGetItemToIndex():
            return x[0] * 2 + x[torch.tensor(1)]

    return twice(c, fn, torch.randn(3, 2))


# --- transforms around compiled functions --------------------------------------------------------


@program()
def transforms_of_compiled_functions(c):
    inner = c(lambda a: (a * a).sin())
    (x,) = data((3, 3))
    inner(x)
    return vmap(inner)(x), grad(lambda a: inner(a).sum())(x), jvp(inner, (x,), (x,)), inner(x)


@program()
def compiled_inside_and_outside(c):
    inner = c(lambda a: vmap(lambda b: b * 2)(a).cos())
    (x,) = data((3, 3))
    return inner(x), grad(lambda a: inner(a).sum())(x), jacrev(inner)(x), inner(x)


test_program = program.tests()


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_errors_of_the_program_are_its_own_under_fullgraph(backend):
    fn = fxstack.compile(grad(lambda a: a * 2), fullgraph=True, backend=backend)
    with pytest.raises(RuntimeError, match="Expected f\\(\\*args\\) to return a scalar"):
        fn(torch.ones(3))
