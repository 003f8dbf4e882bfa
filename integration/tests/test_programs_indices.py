"""Tensors of one number, and NumPy arrays and numbers, as indices and sizes: what eager gives, in one graph."""

import numpy as np
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
    f = c(lambda x, t: (x[t] + 1, x[t, 0] * 2, x[0, t] * 2, x[:, t] + 1, x[..., t].sum(), x[t, t] + x[t, 1:]))
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


@program(graphs=4, breaks=0)
def arrays_of_integers(c):
    f = c(lambda x, i: (x[i], x[:, i], x[i, 0], x[..., i], x[None, i, 1:], x[i, i] + x[0, i], x[1][i]))
    kinds = (np.int64, np.int32, np.int16, np.int8)
    return [f(square(), np.array(i, kind)) for kind in kinds for i in ([0, 2], [3, -1])]


@program(graphs=1, breaks=0)
def arrays_of_two_dimensions_and_of_fractions(c):
    f = c(lambda x, i, q: (x[i].shape, x[0][i], x[i.T[1]], x[q], x[i, i.T], x.t()[q, 1]))
    return f(square(), np.array([[0, 1], [2, 3]]), np.array([1.0, 2.7]))


@program(graphs=1, breaks=0)
def arrays_that_are_computed(c):
    f = c(lambda x, i: (x[np.arange(2) + 1], x[i + 1], x[i.max()], x[:, i[0]] * 2, x[i * 0]))
    return [f(square(), np.array(i)) for i in ([0, 2], [1, 1])]


@program(graphs=1, breaks=0)
def written_by_arrays(c):
    def put(x, i, mask):
        y = x.clone()
        y[i] = 9
        y[:, i] += 1
        y[mask] = 0
        x[i[0]] = y[1]
        return y

    f = c(put)
    masks = np.array([True, False, False, True]), np.array([False] * 4)
    return [(f(x := square(), np.array([0, 2]), mask), x) for mask in masks]


@program(graphs=None)
def arrays_out_of_range(c):
    f = c(lambda x, i: x[i])
    wrong = np.array([0, 9]), np.array([1j]), np.array(True), np.bool_(True), np.float64(1)
    return [attempt(f, square(), i) for i in wrong]


TWO = np.int64(2)


@program(graphs=1, breaks=0)
def numbers_in_indices(c):
    f = c(lambda x: (x[TWO], x[TWO, :TWO], x[np.uint8(1) :: TWO], x[[TWO, np.int32(0)]], x[..., TWO]))
    return f(square())


@program(graphs=1, breaks=0)
def numbers_as_sizes(c):
    return c(
        lambda x: (
            *(x.view(TWO, -1), x.reshape((TWO, 8)), x.view([8, TWO]), x.unflatten(0, (TWO, TWO))),
            *(x.repeat(TWO, 1), x.tile((TWO, 1)), x.repeat_interleave(TWO, dim=np.int64(1))),
            *(torch.zeros(TWO, TWO), torch.ones((TWO, 3)), torch.full((TWO,), 3), x.new_zeros(TWO)),
            *(torch.arange(TWO), torch.arange(np.int64(0), np.int64(9), TWO), torch.eye(TWO)),
            *(torch.arange(np.float64(2.5)), torch.arange(np.float32(2)), torch.linspace(0, 1, TWO)),
            *(
                x.split([TWO, TWO]),
                x.chunk(TWO, dim=TWO - 1),
                x.expand(TWO, -1, -1),
                x[0].as_strided((TWO,), (TWO,)),
            ),
            *(x.sum(dim=(np.int64(0),)), x.permute(np.int64(1), np.int64(0)), x.cumsum(dim=np.int64(0))),
            torch.nn.functional.pad(x, (TWO, np.int32(1))),
        )
    )(square())


@program()
def numbers_that_eager_refuses(c):
    calls = (
        lambda x: torch.split(x, TWO),
        lambda x: x.split(TWO),
        lambda x: x.view(np.float64(2), -1),
        lambda x: torch.zeros(np.float32(2)),
        lambda x: x.sum(np.float64(1)),
    )
    return [attempt(c(f), square()) for f in calls]


test_program = program.tests()
