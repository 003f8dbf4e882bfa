"""Hooks that compiled code hangs on tensors and modules."""

import torch
from beside_eager import Programs, attempt
from torch import nn

program = Programs()


@program(graphs=1, breaks=0)
def hook_on_an_argument(c):
    seen = []

    @c
    def f(x):
        handle = x.register_hook(lambda gradient: gradient * 3)
        x.register_hook(seen.append)
        return x.sin() * 2, handle

    x = torch.ones(3, requires_grad=True)
    y, handle = f(x)
    y.sum().backward(retain_graph=True)
    handle.remove()
    y.sum().backward()
    return x, seen, len(x._backward_hooks)


@program(breaks=0)
def hooks_that_are_removed_again(c):
    model = nn.Linear(3, 3)

    @c
    def f(x):
        handle = model.weight.register_hook(lambda gradient: gradient * 0)
        y = model(x)
        handle.remove()
        return y

    for _ in range(3):
        f(torch.ones(2, 3)).sum().backward()
    return model, model.weight._backward_hooks


@program(breaks=0)
def hooks_that_pile_up(c):
    model = nn.Linear(3, 3)
    order = []

    @c
    def f(x):
        number = len(order)
        model.bias.register_post_accumulate_grad_hook(lambda p: order.append(number))
        return model(x)

    for _ in range(3):
        f(torch.ones(2, 3)).sum().backward()
    return order, model


@program()
def hook_on_what_was_used_before(c):
    @c
    def f(x):
        y = x * 2
        z = y.sin()
        y.register_hook(lambda gradient: gradient * 3)
        return y + z

    x = torch.arange(3.0, requires_grad=True)
    f(x).sum().backward()
    return x


def scaled(x):
    y = x * 2
    z = y.sin() + y.cos()
    y.retain_grad()
    return y, z


@program()
def gradient_kept_of_what_was_used_in_a_callee(c):
    @c
    def f(x):
        y, z = scaled(x)
        (y + z).sum().backward()
        return y.grad

    return f(torch.arange(3.0, requires_grad=True))


@program()
def hooks_in_a_loop(c):
    @c
    def f(x):
        seen = []
        for factor in (2, 3):
            x = x * 2
            x.register_hook(lambda gradient, factor=factor: seen.append((factor, gradient)))
        return x.sum(), seen

    y, seen = f(torch.ones(3, requires_grad=True))
    y.backward()
    return y, seen


@program()
def backward_inside_with_a_hook_on_the_leaf(c):
    @c
    def f(x):
        seen = []
        with x.register_hook(seen.append):
            (x * x).sum().backward()
        (x * x).sum().backward()
        return seen, x.grad

    return f(torch.ones(3, requires_grad=True))


@program()
def what_torch_refuses(c):
    leaf = torch.ones(3, requires_grad=True)
    return [
        attempt(c(lambda x: x.register_hook(print)), torch.ones(3)),
        attempt(c(lambda x: x.register_post_accumulate_grad_hook(print)), leaf * 2),
        attempt(c(lambda x: x.retain_grad()), torch.ones(3)),
        attempt(c(lambda x: x.retain_grad()), leaf),
    ]


@program()
def handles_are_told_apart_from_those_of_plain_code(c):
    model = nn.Linear(3, 3)

    @c
    def f(x):
        return model.register_forward_hook(lambda module, args, out: out * 2), model(x)

    handles = [f(torch.ones(3))[0]]
    handles += [model.register_forward_hook(lambda module, args, out: out + 1) for _ in range(3)]
    handles.append(f(torch.ones(3))[0])
    counts = [len(model._forward_hooks)]
    for handle in handles:
        handle.remove()
        counts.append(len(model._forward_hooks))
    return counts, len({handle.id for handle in handles})


test_equals_eager = program.tests()


@program(graphs=1, breaks=0)
def hooks_on_results(c):
    def f(x, w):
        inside = x * w
        inside.register_hook(lambda g: g * 2)
        result = inside.sin()
        result.register_hook(lambda g: g * 3)
        return result, result.exp() + w

    run = c(f)
    x, w = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
    for _ in range(2):
        a, b = run(x, w)
        a.register_hook(lambda g: g + 1)
        (a.sum() + b.sum()).backward()
    return x, w


@program()
def hooks_with_effects_on_results_and_on_what_stays_inside(c):
    seen = []

    def f(x, w):
        inside = x * w
        inside.register_hook(lambda g: seen.append(("inside", g.clone())))
        w_twice = w * 2
        w_twice.register_hook(lambda g: seen.append(("twice", g.clone())))
        return inside.exp() + w_twice, w_twice

    run = c(f)
    x, w = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
    for _ in range(2):
        b, t = run(x * 1.5, w)
        (b.sum() + t.sum()).backward()
    return x, w, seen
