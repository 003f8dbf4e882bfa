"""State that a hook or a backward of the program reads, and that changes between forward and backward."""

import itertools

import pytest
import torch

import fxstack_capture

STATE = {"k": 2.0, "inner": {"k": [2.0]}}
K = 2.0


class Holder:
    k = 2.0

    def __init__(self):
        self.own = 2.0

    @property
    def computed(self):
        return self.own * 2


HOLDER = Holder()


def cell_of(value):
    def get():
        return value

    def put(new):
        nonlocal value
        value = new

    return get, put


GET, PUT = cell_of(2.0)
READS = {
    "item": (lambda: STATE["k"], lambda v: STATE.update(k=v)),
    "nested item": (lambda: STATE["inner"]["k"][0], lambda v: STATE["inner"]["k"].__setitem__(0, v)),
    "global": (lambda: K, lambda v: globals().update(K=v)),
    "class": (lambda: Holder.k, lambda v: setattr(Holder, "k", v)),
    "attribute": (lambda: HOLDER.own, lambda v: setattr(HOLDER, "own", v)),
    "property": (lambda: HOLDER.computed, lambda v: setattr(HOLDER, "own", v)),
    "dictionary": (lambda: vars(HOLDER)["own"], lambda v: setattr(HOLDER, "own", v)),
    "cell": (GET, PUT),
}


def in_function(read):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return g * read()

    return lambda x: Scaled.apply(x).sum()


def in_hook(read):
    def fn(x):
        y = x * 3
        y.register_hook(lambda g: g * read())
        return (y * y).sum()

    return fn


@pytest.mark.parametrize(("made", "read"), list(itertools.product([in_function, in_hook], READS)))
def test_is_read_in_the_backward(made, read):
    get, put = READS[read]
    fn = made(get)

    def gradients(called):
        found = []
        for value in (2.0, 5.0, 2.0):
            put(2.0)
            x = torch.ones(3, requires_grad=True)
            out = called(x)
            put(value)
            out.backward()
            found.append(x.grad.tolist())
        return found

    assert gradients(fxstack_capture.optimize(lambda graph, _: graph.forward)(fn)) == gradients(fn)
