"""Writes that eager refuses for the memory of their arguments, beside eager: handlers see them, effects before them happen."""

import itertools

import pytest
import torch
from running import Graphs

import fxstack_capture as fx


def expanded():
    return torch.zeros(3).expand(3, 3)


def part_of_expanded():
    return torch.zeros(1, 4).expand(3, 4)[:, :3]


def overlapping():
    return torch.zeros(5).as_strided((3, 3), (1, 1))


def plain():
    return torch.zeros(3, 3)


def assigned(y, x):
    y[...] = 0.125


def copied(y, x):
    y.copy_(x)


def copied_into_a_view(y, x):
    y.t().copy_(x)


def added(y, x):
    y.add_(x)


def added_in_a_list(y, x):
    torch._foreach_add_([y], 1)


def drawn(y, x):
    y.normal_()


def computed_into(y, x):
    torch.add(x, x, out=y)


def masked(y, x):
    y.masked_fill_(x > 2, 1)


def indexed(y, x):
    y[torch.tensor([0, 1])] = x[:2]


def moved(y, x):
    y[1:].copy_(y[:-1])


def moved_and_added(y, x):
    y[1:].add_(y[:-1])


def moved_apart(y, x):
    y[2:].copy_(y[:1])


def transposed(y, x):
    y.add_(y.t())


TENSORS = [expanded, part_of_expanded, overlapping, plain]
WRITES = [
    *(assigned, copied, copied_into_a_view, added, added_in_a_list, drawn, computed_into, masked),
    *(indexed, moved, moved_and_added, moved_apart, transposed),
]


def seen(write, make, compile):
    """What three programs do: one handles the error, one passes it on, one has a ``finally`` block."""

    def handling(y, x, log):
        log.append("before")
        try:
            write(y, x)
        except RuntimeError:
            log.append("handled")
            return x * 2
        log.append("after")
        return x + 1

    def passing(y, x, log):
        log.append("before")
        write(y, x)
        log.append("after")
        return x + 1

    def cleaning(y, x, log):
        try:
            log.append("before")
            write(y, x)
        finally:
            log.append("finally")
        return x + 1

    for program in (handling, passing, cleaning):
        y, x, log = make(), torch.arange(9.0).view(3, 3), []
        torch.manual_seed(0)
        try:
            result = compile(program)(y, x, log).tolist()
        except RuntimeError as error:
            result = str(error)
        yield result, y.tolist(), log


@pytest.mark.filterwarnings("ignore:Use of")
@pytest.mark.parametrize(("make", "write"), [*itertools.product(TENSORS, WRITES)])
def test_refused_writes(make, write):
    assert [*seen(write, make, fx.optimize())] == [*seen(write, make, lambda fn: fn)]


ACCEPTED = [
    *((plain, write) for write in (copied, added, moved_apart, copied_into_a_view, added_in_a_list)),
    *((expanded, write) for write in (masked, indexed)),
]


@pytest.mark.filterwarnings("ignore:Use of")
@pytest.mark.parametrize(("make", "write"), ACCEPTED)
def test_writes_that_eager_accepts_stay_in_the_graph(make, write):
    def program(y, x):
        write(y, x)
        return x + 1

    backend = Graphs()
    fx.optimize(backend)(program)(make(), torch.ones(3, 3))
    assert len(backend) == 1
