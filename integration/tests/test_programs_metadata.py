"""Inputs whose size, strides or history the compiled function changes in place."""

import torch
from beside_eager import Programs, attempt

program = Programs()


def matrix(rows=3, columns=4):
    return torch.linspace(-1, 1, rows * columns).reshape(rows, columns)


def state(tensor):
    return (
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        tensor._version,
        tensor.requires_grad,
        tensor.is_leaf,
    )


@program(graphs=1, breaks=0)
def transposed(c):
    @c
    def f(x):
        x.t_()
        return x * 2, x[0]

    x = matrix()
    return f(x), x, state(x)


@program(graphs=2, breaks=0)
def transposed_there_and_back(c):
    @c
    def f(x):
        x.add_(1)
        x.transpose_(0, 1)
        x[0].mul_(2)
        return x.sum(0)

    x = matrix()
    return f(x), f(x), f(x), x, state(x)


@program(graphs=1, breaks=0, dynamic=True)
def transposed_of_many_sizes(c):
    @c
    def f(x):
        x.t_()
        x.add_(1)
        return x * 2

    inputs = [matrix(n, 3) for n in (5, 7, 9)]
    return [f(x) for x in inputs], inputs, [state(x) for x in inputs]


@program()
def outside_of_the_tensor(c):
    @c
    def f(x):
        return x.as_strided((2, 2), (1, 2), 1).mul_(3).sum()

    base = torch.arange(12.0)
    return f(base[2:8]), base


@program(graphs=1, breaks=0)
def part_of_a_storage(c):
    @c
    def f(x):
        x.unsqueeze_(0).as_strided_((2, 2), (1, 2), 3)
        return x.mul_(3).sum(), x

    base = torch.arange(12.0)
    x = base[2:8]
    return f(x), x, base, state(x)


@program(graphs=1, breaks=0)
def attribute_of_a_module(c):
    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", matrix())

        def forward(self, x):
            self.table.t_()
            self.table.mul_(2)
            return x @ self.table

    module = Keeps()
    return c(module)(torch.ones(2, 4)), module, state(module.table)


@program(graphs=1, breaks=0)
def transposed_result_of_outside(c):
    @c
    def f(x, w):
        y = x + w
        x.t_()
        return y, x * 3

    root, w = matrix().requires_grad_(), matrix().requires_grad_()
    x = root * 2
    y, z = f(x, w)
    (y.sum() + z.pow(2).sum() + x.sum()).backward()
    return y, z, x, state(x), root, w


@program()
def transposed_leaf(c):
    @c
    def f(x):
        x.t_()
        return x * 2

    return attempt(f, matrix().requires_grad_())


@program(graphs=1, breaks=0)
def slope_at_an_input(c):
    @c
    def f(x, w):
        x.requires_grad_()
        u = (x * w).sin().sum()
        (slope,) = torch.autograd.grad(u, x, create_graph=True)
        return (slope**2).sum()

    x, w = matrix().clone(), matrix().requires_grad_()
    loss = f(x, w)
    loss.backward()
    return loss, x, x.grad, w.grad, state(x)


@program(graphs=2, breaks=0)
def leaf_from_here_on(c):
    @c
    def f(x):
        before = x * 2
        x.requires_grad_()
        return before, x.exp()

    x = matrix().clone()
    first = f(x)
    first[1].sum().backward()
    second = f(x)
    (second[0].sum() + second[1].sum()).backward()
    return first, second, x, x.grad, state(x)


@program(graphs=1, breaks=0)
def truncated_history(c):
    @c
    def f(h, w):
        before = h + w
        h.detach_()
        return before, h * w, h

    root, w = matrix().requires_grad_(), matrix().requires_grad_()
    h = root * 2
    before, after, same = f(h, w)
    (before.sum() + after.sum()).backward()
    return before, after, same, same is h, root, w, state(h)


def through_time(c, step):
    f = c(step)
    h, w = torch.zeros(2, 3), torch.linspace(-1, 1, 9).reshape(3, 3).requires_grad_()
    for _ in range(4):
        loss, h = f(h, w)
        loss.backward()
    return h, w


@program()
def truncated_through_time(c):
    def step(h, w):
        h = torch.tanh(h.detach() @ w + 1)
        return h.sum(), h

    return through_time(c, step)


@program()
def truncated_through_time_in_place(c):
    def step(h, w):
        h.detach_()
        h = torch.tanh(h @ w + 1)
        return h.sum(), h

    return through_time(c, step)


@program(graphs=2, breaks=1)
def frozen_parameter(c):
    @c
    def f(x, w):
        before = x * w
        w.requires_grad_(False)
        return before, x * w

    x, w = matrix(), matrix().requires_grad_()
    before, after = f(x, w)
    return before, after, w, after.requires_grad


@program(breaks=1)
def leaf_that_is_a_view(c):
    @c
    def f(x):
        x.requires_grad_()
        return x * 2

    base = matrix()
    x = base[1:]
    y = f(x)
    y.sum().backward()
    return y, x, x.grad, state(x), base


@program(graphs=1, breaks=0)
def saved_after_the_change(c):
    @c
    def f(x, w):
        x.t_()
        return x * w.t()

    x, w = matrix(), matrix().requires_grad_()
    y = f(x, w)
    y.sum().backward()
    return y, x, w, state(x)


@program(graphs=1, breaks=0)
def parts_of_one_storage(c):
    @c
    def f(a, b, d):
        a.add_(1)
        d.mul_(5)
        return b.sum()

    base = torch.arange(12.0)
    return f(base[:4], base[2:6], base[8:]), base


@program(graphs=1, breaks=0, dynamic=True)
def neighbours_of_symbolic_sizes(c):
    @c
    def f(a, b):
        a.add_(1)
        return b.sum()

    bases = [torch.arange(float(n)) for n in (5, 7, 9)]
    return [f(base[:-1], base[1:]) for base in bases], bases


@program(graphs=1, breaks=0)
def becomes_a_result_with_history(c):
    @c
    def f(x, w):
        x.add_(w)
        return x * 2

    x, w = matrix(), matrix().requires_grad_()
    y = f(x, w)
    (y.sum() + x.pow(2).sum()).backward()
    return x, y, w, state(x)


test_program = program.tests()
