"""Half precision converted around vector loops: all strategies and lengths, the bits of NaN, results in place."""

import re

import pytest
import torch
from inductor_checks import FAST, check, trace

import fxstack_inductor as fi

F = torch.nn.functional
HALVES = [torch.float16, torch.bfloat16]
ZEROS = re.compile(r"j\+\+\) half\d+\[j\] = 0;")


def t(dtype, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(7)).to(dtype)


PROGRAMS = {
    "points": lambda x: (x.exp() + 1, x * 2),
    "rows": lambda x: x.softmax(-1),
    "rows, two results": lambda x: ((x - x.amax(-1, keepdim=True)).exp(), x.sum(-1)),
    "columns": lambda x: ((x.exp() * 2).sum(0), x.amax(0)),
    "all": lambda x: (x.exp().sum(), x.sum()),
    "tiles": lambda x: x.t().contiguous() + x.t().exp(),
    "places": lambda x: (x.argmax(-1), x.exp().argmax(0)),
    "scans": lambda x: x.float().exp().cumsum(-1).to(x.dtype),
    "parts": lambda x: torch.cat([x.exp(), x, -x], -1),
    "steps": lambda x: x[:, ::2].exp() + 1,
    "far steps": lambda x: x.t().contiguous().t()[:, :40].exp() + x[:, :40],
    "far reads": lambda x: x[:, torch.arange(x.shape[1]).flip(0)].exp() + 1,
    "far reads under conditions": lambda x: torch.cat([x[:, 5:], x[:, :5]], -1).flip(-1).roll(3, 0).t().exp(),
    "few columns that are joined": lambda x: torch.cat([(y := x[:, :7].flip(-1).exp())[:, 5:], y[:, :5]], -1),
    "far reads that are results": lambda x: ((y := x[:, x[0].argsort()]), y + x),
    "far reads of several tensors": lambda x: x[:, (i := x[0].argsort())] * x[0][i] + i,
    "far reads by the elements themselves": lambda x: x[:, x[0].abs().long() % x.shape[1]].sigmoid(),
    "far reads in rows": lambda x: x[:, torch.arange(x.shape[1]).flip(0)].exp().sum(-1),
    "far reads in columns": lambda x: x[:, torch.arange(x.shape[1]).flip(0)].exp().sum(0),
    "far reads at places from reductions": lambda x: x.gather(-1, x.argmax(-1, keepdim=True)) + x.exp(),
    "far reads at places from columns": lambda x: x.gather(0, x.argmax(0, keepdim=True)) + x.exp().amax(0),
    "far reads at kept places": lambda x: x[:, (x[0] * 9).exp().long() % x.shape[1]].softmax(-1),
    "far results": lambda x: ((y := x.exp()), y.t().contiguous(), y.sum(-1)),
    "far results of columns": lambda x: ((y := x.exp()), y.t().contiguous(), y.amax(0)),
    "turned around": lambda x: x.flip(-1).exp(),
    "padded": lambda x: F.pad(x, (1, 2)).exp(),
    "broadcast": lambda x: torch.maximum(x.exp(), x[:, :1]) + x[0],
    "rounded for the result": lambda x: (x.float() * 3).to(x.dtype).exp().to(x.dtype),
}


def of_columns(x):
    """Two results of each of two sums over the same columns, one after the other (a batch norm's statistics)."""
    mean = x.float().mean(0)
    spread = (x - mean).square().mean(0)
    return (mean.exp().to(x.dtype), (mean * 2).to(x.dtype), spread.exp().to(x.dtype), spread.to(x.dtype))


PROGRAMS["columns, twice"] = of_columns


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_strategies(name, dtype):
    check(PROGRAMS[name], t(dtype, 33, 70))
    check(PROGRAMS[name], t(dtype, 9, 1040))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 31, 40, 511, 512, 513, 1030])
def test_lengths(size):
    check(lambda x: (torch.relu(x) + 1, x.exp()), t(torch.float16, size))
    check(lambda x: torch.relu(x).sum(-1), t(torch.float16, 5, size))
    check(lambda x: torch.relu(x) + x[:, :1], t(torch.float16, 5, size))


@pytest.mark.parametrize("dtype", HALVES)
def test_rows_picked_by_an_index(dtype):
    check(lambda w, i: F.embedding(i, w).exp(), t(dtype, 50, 48), torch.randint(0, 50, (3, 7)))
    check(
        lambda x, i, v: x.index_put((i,), v * 2, accumulate=True).exp(),
        t(dtype, 20, 48),
        torch.tensor([3, 5, 3]),
        t(dtype, 3, 48),
    )


def run(fn, *args):
    return fi.compile_graph(trace(fn, *args), args, FAST)(*args)


@pytest.mark.parametrize("dtype", HALVES)
def test_copies_keep_every_bit(dtype):
    every = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype).reshape(256, 256)
    for copy in (
        lambda x: x.t().contiguous(),
        lambda x: torch.cat([x, x.flip(0)]),
        lambda x: F.pad(x, (1, 1)),
    ):
        assert torch.equal(run(copy, every)[0].view(torch.int16), copy(every).view(torch.int16))


def test_swapped_inputs():
    x, y = t(torch.float16, 40), t(torch.float16, 40) + 1
    expected = y.clone(), x.clone()

    def swap(x, y):
        old = x.clone()
        return x.copy_(y), y.copy_(old)

    run(swap, x, y)
    assert torch.equal(x, expected[0])
    assert torch.equal(y, expected[1])


def test_changes_in_place():
    x, y = t(torch.float16, 6, 520), t(torch.float16, 6, 520)
    expected = (x * 2 + y).relu()
    run(lambda x, y: x.mul_(2).add_(y).relu_(), x, y)
    torch.testing.assert_close(x, expected)


@pytest.mark.parametrize("dtype", HALVES)
def test_results_apart_leave_vector_loops(dtype):
    compiled = check(lambda x: ((y := x.exp()).sum(-1), y.t().contiguous()), t(dtype, 33, 70))
    assert "narrow" in compiled.lowered.c


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", [2, 3, 5, 8, 9, 14, 16, 17, 33, 255, 1025])
def test_short_loops_over_arrays_are_whole_vectors(size, dtype):
    """Points beyond the rows are zeros, whose functions (a logarithm) nothing stores or raises."""
    x, order = t(dtype, 6, size), torch.randperm(size)
    compiled = check(lambda x, i: F.gelu(x)[:, i].abs().log(), x, order)
    assert bool(ZEROS.search(compiled.lowered.c)) == (size not in {2, 8, 16, 1025})
    check(lambda x, y, i: x[:, i].float().exp() + y, x, t(torch.float32, 6, size), order)


def test_loops_that_read_other_memory_end_with_the_row():
    """A place that is also a number is read from memory, which ends with the row."""
    compiled = check(
        lambda x, i: (x[:, i].float() * i).to(x.dtype), t(torch.float16, 6, 14), torch.randperm(14)
    )
    assert not ZEROS.search(compiled.lowered.c)


@pytest.mark.parametrize("dtype", HALVES)
def test_reads_at_kept_places_leave_the_vector_loops_of_columns(dtype):
    x, i = t(dtype, 64, 300), torch.randperm(64)
    compiled = check(lambda x, i: (y := x.t()[:, i].sigmoid()).cumsum(0) + y.std(0), x, i)
    body = compiled.lowered.c.partition("void kernel_0")[2]
    assert re.search(r"half\d+\[j\] = \w+_load\(a\d+\[\(int32_t\)v\d+\*300", body)
