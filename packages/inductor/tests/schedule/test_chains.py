"""Kernels of chains grow with the number of links, and not faster: no link is evaluated twice."""

import pytest
import torch
from inductor_checks import FAST, check, trace

import fxstack_inductor as fi
from fxstack_inductor.ir.analysis import Analysis
from fxstack_inductor.schedule.fusion import inplace_scatter

X = torch.linspace(-1, 1, 3 * 5 * 7).reshape(3, 5, 7)


def block(m, i):
    m[i % 2 : i % 2 + 2, i % 3 : i % 3 + 2, i % 4 : i % 4 + 3] = i


def plane(m, i):
    m[i % 2 : i % 2 + 2, :, i % 4 : i % 4 + 3] *= 0.5


def row(m, i):
    m[i % 3, i % 5] = i


def slices(m, i):
    m[i % 2 : i % 2 + 2] = i


def inner(m, i):
    m.view(3, 35)[:, i % 5 : i % 5 + 9].view(3, 3, 3)[1:, :2] = i


WRITES = {f.__name__: f for f in (block, plane, row, slices, inner)}


def chain(write, n):
    def run(x):
        m = x * 2
        for i in range(n):
            write(m, i)
        return m

    return run


def values(lowered):
    return sum(len(s.kernel.values) for s in lowered.plan.steps if hasattr(s, "kernel"))


@pytest.mark.parametrize(("name", "symbolic"), [*((n, False) for n in WRITES), ("block", True)])
def test_writes_are_looked_through_once(name, symbolic):
    lowered = [fi.lower(trace(chain(WRITES[name], n), X, symbolic=symbolic), (), FAST) for n in (5, 10)]
    assert values(lowered[1]) <= 2.5 * values(lowered[0])
    assert values(lowered[1]) < 600


@pytest.mark.parametrize(("name", "symbolic"), [*((n, False) for n in WRITES), ("block", True)])
def test_their_values_are_eagers(name, symbolic):
    check(chain(WRITES[name], 7), X, symbolic=symbolic)


MOVES = {
    "roll": lambda x: x.roll(2, 0),
    "reshape of transpose": lambda x: x.t().reshape(x.shape),
    "convert": lambda x: x.double().float(),
    "look up": lambda x: x.index_select(0, torch.arange(11, -1, -1)),
    "flip": lambda x: x.flip(0),
    "windows": lambda x: x.unfold(0, 3, 3).reshape(x.shape),
    "slices": lambda x: torch.cat([x[1:], x[:1]]),
}


@pytest.mark.parametrize("name", MOVES)
def test_moved_elements_are_looked_through_to_a_certain_depth(name):
    def run(x, n):
        for _ in range(n):
            x = MOVES[name](x)
        return x

    x = torch.randn(12, 16)
    lowered = [fi.lower(trace(lambda x, n=n: run(x, n), x), (), FAST) for n in (15, 45)]
    assert len(lowered[1].c) < 2 * len(lowered[0].c)
    assert values(lowered[1]) < 4 * values(lowered[0])
    check(lambda x: run(x, 12), x)


def test_a_thousand_conversions():
    def run(x):
        for _ in range(500):
            x = x.double().float()
        return x

    check(run, torch.randn(5))


def test_steps_of_chained_scatters_are_renamed_once(monkeypatch):
    calls = []
    real = inplace_scatter.rename_buffers
    monkeypatch.setattr(inplace_scatter, "rename_buffers", lambda *args: (calls.append(1), real(*args))[1])

    def run(x, at, y, n):
        for k in range(n):
            x = x.index_add(0, at, y * k)
        return x

    x, at, y = torch.randn(6, 8), torch.tensor([3, 1]), torch.randn(2, 8)
    for n in (10, 30):
        calls.clear()
        lowered = fi.lower(trace(lambda *args, n=n: run(*args, n), x, at, y), (), FAST)
        assert 0 < len(calls) <= len(lowered.plan.steps)
    check(lambda *args: run(*args, 10), x, at, y)


def test_passes_over_rows_are_looked_at_once(monkeypatch):
    calls = []
    real = Analysis.needed
    counted = lambda *args, **given: (calls.append(1), real(*args, **given))[1]
    monkeypatch.setattr(Analysis, "needed", counted)

    def run(x, n):
        for _ in range(n):
            x = x.softmax(1)
        return x

    found = []
    for n in (4, 8):
        calls.clear()
        fi.lower(trace(lambda x, n=n: run(x, n), torch.randn(6, 16)), (), FAST)
        found.append(len(calls))
    assert found[1] < 2.5 * found[0]
    check(lambda x: run(x, 4), torch.randn(6, 16))
