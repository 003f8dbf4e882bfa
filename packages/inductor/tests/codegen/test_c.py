"""The C file: options that change it, threads, accuracy of vector math."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import FAST, check, trace

import fxstack_inductor as fi

X = torch.linspace(-8, 8, 20_000)
VECTOR = dataclasses.replace(FAST, optimization=3)
FUNCTIONS = ("exp", "log1p", "tanh", "erf", "sin", "cos", "expm1", "sigmoid", "atan", "exp2", "asinh")


def ulps(got, exact):
    """Distance in units in the last place of ``exact`` rounded to float32."""
    near = exact.float()
    spacing = (torch.nextafter(near.abs(), torch.tensor(torch.inf)) - near.abs()).double()
    return ((got.double() - exact) / spacing).abs().max()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vector_math_is_within_four_ulp(name):
    function = getattr(torch, name)
    x = X.abs() if name == "log1p" else X
    compiled = fi.compile_graph(trace(lambda x: function(x), x), (x,), VECTOR)
    assert ulps(compiled(x)[0], function(x.double())) <= (8 if name == "sigmoid" else 4)


def test_exact_math_calls_no_vector_function():
    options = dataclasses.replace(VECTOR, exact_math=True)
    compiled = check(lambda x: x.exp(), X, options=options)
    assert compiled.lowered.c.startswith("#define FXSTACK_EXACT_MATH")
    assert ulps(compiled(X)[0], X.double().exp()) <= 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        options = dataclasses.replace(VECTOR, grain=16)
        x = torch.randn(37, 1001)
        check(lambda x: (x.exp().sum(), x.sum(0), x.softmax(1), x * 2, x[:2].amax(1)), x, options=options)
    finally:
        torch.set_num_threads(before)


def test_products_and_sums_are_not_contracted():
    x, y, z = torch.randn(3, 1000)
    (got,) = fi.compile_graph(trace(lambda x, y, z: x * y + z, x, y, z), (), VECTOR)(x, y, z)
    assert torch.equal(got, x * y + z)


def turned(dtype):
    """Tensors of many odd sizes, each turned over, as one graph."""
    sizes = [(12, 32), (7, 9), (8, 8), (33, 17), (16, 40), (5, 64), (64, 5), (31, 33)]
    return [(torch.randn(2, *size) * 50).to(dtype) for size in sizes]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
def test_turned_tiles_at_the_level_that_users_get(dtype):
    def fn(*tensors):
        return tuple((x.transpose(1, 2) * 2).contiguous() for x in tensors)

    check(fn, *turned(dtype), options=VECTOR)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int32])
def test_conditional_loads_of_swapped_neighbours_keep_their_order(dtype):
    """The gradient of a rotary embedding of neighbours; GCC 12 at -O3 made one unordered vector of two such loads."""

    def rotated(x, y):
        kept, rest = x[..., :32], x[..., 32:]
        pair = (kept * y).unflatten(-1, (-1, 2))
        turned = torch.stack((pair[..., 1], -pair[..., 0]), -1).flatten(-2)
        return F.pad(rest, (32, 0)) + F.pad(kept + turned, (0, 32))

    x, y = torch.arange(8192.0).view(2, 32, 2, 64), torch.arange(1024.0).view(32, 1, 32)
    check(rotated, (x % 61).to(dtype), (y % 7).to(dtype), options=VECTOR)


@pytest.mark.parametrize("line", ["y = x + \\", "y = x + \\  ", "y = '\\\\'", "y = x  # */ */ \\"])
def test_lines_of_the_program_do_not_end_where_they_say(line):
    graph = trace(lambda x: x.exp().sum() + 1, X)
    for node in graph.graph.nodes:
        node.meta["stack_trace"] = f'  File "program.py", line 3, in f\n    {line}\n'
    compiled = fi.compile_graph(graph, (X,), FAST)
    assert "// y =" in compiled.lowered.c
    torch.testing.assert_close(compiled(X)[0], X.exp().sum() + 1)
