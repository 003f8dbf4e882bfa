"""Programs whose backward passes torch's compiled autograd records: each yields values to compare with eager's.

With each program: the number of graphs that torch's own compiler makes of its backward passes.
"""

import torch

PROGRAMS = {}


def program(graphs):
    def add(fn):
        PROGRAMS[fn.__name__] = fn, graphs
        return fn

    return add


def net():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))


def leaf(count=4):
    return torch.arange(1.0, count + 1, requires_grad=True)


def same(found):
    return torch.tensor(float(found))


@program(2)  # with and without old gradients
def steps():
    model = net()
    for _ in range(3):
        model(torch.randn(2, 4)).sum().backward()
        yield from (p.grad.clone() for p in model.parameters())


@program(1)
def sizes_that_change():
    model = net()
    for count in range(2, 6):
        model.zero_grad()
        model(torch.randn(count, 4)).sum().backward()
        yield from (p.grad for p in model.parameters())


@program(1)
def tensor_hooks():
    x = leaf()
    x.register_hook(lambda g: g * 2)
    y = x.sin()
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: None)
    y.sum().backward()
    yield x.grad


@program(1)
def hooks_with_effects():
    x, seen = leaf(), []
    y = x.sin()
    for tensor, name in ((x, "x"), (y, "y")):
        tensor.register_hook(lambda g, name=name: seen.append((name, g * 2)))
    (y * y).sum().backward()
    yield same([name for name, _ in seen] == ["y", "x"])
    yield from (g for _, g in seen)
    yield x.grad


@program(1)
def kept_gradients_stay_apart():
    x, seen = leaf(), []
    y = x * 2
    x.register_hook(seen.append)
    y.backward(torch.ones(4))
    x.grad.add_(1)
    yield from (x.grad, *seen)


@program(1)
def incoming_gradients_stay_apart():
    x, given = leaf(), torch.ones(4)
    (x + 1).backward(given)
    x.grad.add_(1)
    yield from (x.grad, given)


@program(1)
def hooks_after_accumulation():
    x, seen = leaf(), []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad * 3))
    x.exp().sum().backward()
    yield from (x.grad, *seen)


@program(1)
def hooks_that_clear_the_gradient():
    x = leaf()

    def clear(p):
        p.grad = None

    x.register_post_accumulate_grad_hook(clear)
    x.exp().sum().backward()
    yield same(x.grad is None)


@program(1)
def hooks_of_nodes():
    x = leaf()
    y = x.sin()
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + outputs[0],))
    y.sum().backward()
    yield x.grad


@program(1)
def hooks_of_modules():
    model, seen = torch.nn.Linear(4, 4), []
    model.register_full_backward_pre_hook(lambda _, grads: (grads[0] * 2,))
    model.register_full_backward_hook(lambda _, inputs, outputs: seen.append(outputs[0] + inputs[0].sum()))
    x = torch.randn(2, 4, requires_grad=True)
    model(x).sum().backward()
    yield from (x.grad, model.weight.grad, *seen)


@program(1)
def hooks_of_saved_tensors():
    x = leaf()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t + 1, lambda t: t - 1):
        (x * x).sin().sum().backward()
    yield x.grad


@program(1)
def callbacks_at_the_end():
    x, seen = leaf(), []

    def later():
        seen.append(x.grad * 2)

    def hook(_grad):
        torch.autograd.Variable._execution_engine.queue_callback(later)

    x.register_hook(hook)
    x.sin().sum().backward()
    yield from (x.grad, *seen)


@program(1)
def branches_on_sizes():
    for count in (4, 4):
        x = leaf(count)
        x.register_hook(lambda g: g * 2 if g.shape[0] > 3 else g * 3)
        x.sin().sum().backward()
        yield x.grad


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.factor + x, None


@program(1)
def custom_functions():
    for count in (2, 3, 4):
        x = leaf(count)
        Scaled.apply(x, 3).sum().backward()
        yield x.grad


@program(1)
def two_custom_functions():
    x = leaf()
    Scaled.apply(Scaled.apply(x, 3), 2.5).sum().backward()
    yield x.grad


@program(1)
def gradients_of_inputs():
    x, y = leaf(), leaf()
    yield from torch.autograd.grad((x * y).sin().sum(), (x, y))
    yield same(x.grad is None)


@program(1)
def chosen_leaves():
    x, y = leaf(), leaf()
    (x * y).sum().backward(inputs=[x])
    yield x.grad
    yield same(y.grad is None)


@program(2)
def leaves_that_repeat():
    x, w = leaf(), torch.ones(4)
    for _ in range(2):
        (x * w + x * x).sum().backward()
        yield x.grad.clone()


@program(1)
def accumulation_in_place():
    x = leaf()
    old = x.grad = torch.ones(4)
    for _ in range(3):
        x.sin().sum().backward()
        yield old.clone()
        yield same(x.grad is old)


@program(1)
def layout_of_gradients():
    x = torch.randn(5, 4).t().requires_grad_()
    (x * x).sum().backward()
    yield x.grad
    yield torch.tensor(x.grad.stride())


@program(1)
def one_gradient_for_two_leaves():
    a, b = leaf(), leaf()
    ((a + b) * 3).sum().backward()
    a.grad.add_(1)
    yield from (a.grad, b.grad)


@program(1)
def views_in_place():
    x = leaf()
    y = x.clone()
    y[1:3].mul_(2)
    y[0] = 3
    y.sum().backward()
    yield x.grad


@program(2)
def second_backwards():
    x = leaf()
    loss = x.sin().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    yield x.grad
    try:
        loss.backward()
    except RuntimeError as error:
        yield same("second time" in str(error))


@program(2)
def second_derivatives():
    x = leaf()
    (found,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
    found.sum().backward()
    yield from (found, x.grad)
