"""Indices that are tensors of one number: the same views and writes as in eager, in one graph."""

import torch
from beside_eager import Programs, attempt

program = Programs()
KINDS = (torch.int64, torch.int32, torch.int16, torch.int8)


def square(n=4):
    return torch.arange(float(n * n)).reshape(n, n)


def each(f, *indices):
    return [attempt(f, square(), torch.tensor(i, dtype=d)) for d in KINDS for i in indices]


@program(graphs=4, breaks=0)
def read(c):
    f = c(
        lambda x, t: (
            x[t] + 1,
            x[t, 0] * 2,
            x[0, t] * 2,
            x[:, t] + 1,
            x[..., t].sum(),
            x[t, t] + x[t, 1:],
        )
    )
    return each(f, 0, 3, -1, -4, 7)


@program(graphs=4, breaks=0)
def read_beside_others(c):
    rows = torch.tensor([1, 0])
    f = c(lambda x, t: (x[None, t], x[t, None], x[t, rows], x[rows, t], x[:, t, None]))
    return each(lambda x, t: [y.clone() for y in f(x, t)], 0, 3, -2)


@program(graphs=4, breaks=0)
def views_that_leave(c):
    f = c(lambda x, t: (x[t], x[:, t], x[None, t], x[t].unbind()[1], x.t()[t, t]))

    def views(x, t):
        found = f(x, t)
        return x, found, [v.storage_offset() for v in found], [v._is_view() for v in found]

    return each(views, 0, 3, -1, 5)


@program(graphs=1, breaks=0)
def views_that_leave_with_what_was_changed(c):
    f = c(lambda x, t: (x.add_(1), x[t], x[:, t]))
    return [f(square(), torch.tensor(i)) for i in (0, 2, -1)]


@program(graphs=1, breaks=0)
def views_with_gradients(c):
    f = c(lambda w, t: (w[t], (w * 2)[t], w[:, t] * 2))
    w = square().requires_grad_()
    for i in (0, 3, -1):
        sum((y * n).sum() for n, y in enumerate(f(w, torch.tensor(i)), 1)).backward()
    return w.grad


@program(graphs=4, breaks=0)
def written(c):
    def put(x, t):
        y = x.clone()
        y[t] = 9
        y[t, 0] = y[1, 1]
        y[0, t] += 1
        y[..., t] *= 2
        y[t, 1:] = x[0, :3]
        x[t] = -1
        return y

    f = c(put)
    return each(lambda x, t: (f(x, t), x), 0, 3, -1)


@program(graphs=1, breaks=0)
def computed_in_the_graph(c):
    f = c(lambda x: (x[x.argmin() // 4], x[x[1].argmax(), 0], x.flatten()[x.long().sum() % 16]))
    return [f(square()), f(-square())]


test_program = program.tests()
