"""Shares of loops: whatever the number of threads, each point is computed once; small work enters no parallel region."""

import dataclasses
import os
import re
import subprocess
import sys

import pytest
import torch
from inductor_checks import FAST, check, trace

import fxstack_inductor as fi

SHARED = dataclasses.replace(FAST, grain=1)


def nest(x):
    """Kernels of one to four shared loops, rows, columns, tiles, and a total."""
    turned = x.permute(1, 3, 0, 2).contiguous() + 1
    return x * 2, turned, x.softmax(-1), x.sum((0, 1)), x.flatten() + 1, (x * x).sum()


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("shape", [(2, 3, 5, 40), (1, 1, 9, 33), (5, 1, 2, 17), (1, 2, 1, 1)])
def test_every_point_has_one_thread(threads, shape):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(nest, torch.randn(shape), options=SHARED)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.float32])
@pytest.mark.parametrize("op", [torch.atan2, torch.pow, torch.hypot])
def test_functions_of_narrow_numbers_have_the_same_bits(op, dtype):
    """A vector holds as many points as of the narrowest numbers; what is left of a share is computed one by one, otherwise."""

    def fn(x, y):
        return (op(x.float(), y.float() + 1),)

    before = torch.get_num_threads()
    try:
        for points in (77, 100, 125, 333):
            x, y = ((torch.rand(points) * 3).to(dtype) for _ in range(2))
            run = fi.compile_graph(trace(fn, x, y), [x, y], SHARED)
            found = []
            for threads in (1, 2, 3, 8):
                torch.set_num_threads(threads)
                found.append(run(x, y)[0])
            assert all(torch.equal(found[0], other) for other in found)
    finally:
        torch.set_num_threads(before)


def test_a_part_that_is_not_shared_runs_once():
    """Beside parts that are: done by each thread, it would read what another has written to its argument."""

    def fn(x, y):
        result = x + y
        x.narrow(0, 0, 1).zero_()
        return (result,)

    run = fi.compile_graph(trace(fn, torch.randn(33), torch.randn(33)), [torch.randn(33)] * 2, SHARED)
    before = torch.get_num_threads()
    torch.set_num_threads(7)
    try:
        for _ in range(200):
            x, y = torch.randn(33), torch.randn(33)
            wanted = x + y
            assert torch.equal(run(x, y)[0], wanted)
            assert x[0] == 0
    finally:
        torch.set_num_threads(before)


def test_symbolic_sizes_may_be_zero_in_each_dimension():
    shapes = ((7, 2, 3, 9), (0, 4, 5, 6), (3, 0, 5, 6), (3, 4, 5, 0))
    check(
        lambda x: (x * 2, x.sum((0, 1)), x.transpose(0, 3) + 1, x.flatten().exp().sum()),
        torch.randn(3, 4, 5, 6),
        symbolic=True,
        options=SHARED,
        others=[(torch.randn(shape),) for shape in shapes],
    )


def parallel_regions(fn, *args, grain):
    graph = trace(fn, *args)
    text = fi.lower(graph, options=dataclasses.replace(FAST, grain=grain)).c
    return len(re.findall("GOMP_parallel\\(kernel", text))


def test_known_little_work_has_no_parallel_region():
    assert parallel_regions(nest, torch.randn(2, 3, 4, 5), grain=10_000) == 0


def test_known_much_work_has_them():
    assert parallel_regions(nest, torch.randn(2, 3, 4, 5), grain=1) > 0


FEWER = """
import dataclasses, torch, fxstack_inductor as fi
from torch.fx.experimental.proxy_tensor import make_fx
torch.set_num_threads(4)
x = torch.ones(300, 301)
fn = lambda x: (x * 2, x.sum(), x.sum(0))
graph = make_fx(fn, decomposition_table=fi.decompositions(), tracing_mode="fake")(x)
run = fi.compile_graph(graph, (x,), fi.InductorOptions(grain=1, optimization=1))
for got, want in zip(run(x), fn(x)):
    assert torch.equal(got, want), (got, want)
"""


def test_a_team_that_is_smaller_than_asked_for_computes_everything():
    environment = {**os.environ, "OMP_THREAD_LIMIT": "2"}
    subprocess.run([sys.executable, "-c", FEWER], env=environment, check=True)


def test_parts_of_one_loop_have_shares_of_their_own():
    check(lambda x, y: torch.cat([x, y * 2]), torch.randn(24), torch.randn(24), options=SHARED)
