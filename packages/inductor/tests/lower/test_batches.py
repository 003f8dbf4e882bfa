"""Batch and group normalisation, with what they do to running statistics."""

import pytest
import torch
from inductor_checks import FAST, assert_equal, check, externs, trace
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F

import fxstack_inductor as fi

SHAPES = [(6, 5), (6, 5, 7), (3, 5, 4, 6), (300, 5, 10, 6)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def lowered(fn, *inputs):
    """Compiled without a call of an ATen kernel (autograd's empty reserve aside)."""
    compiled = check(fn, *inputs)
    assert set(externs(compiled)) <= {"aten.empty.memory_format"}


def operands(shape, dtype, channels=5):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    return x, *(torch.rand(channels).to(dtype) + 0.5 for _ in range(4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(shape, dtype, training):
    lowered(lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, training), *operands(shape, dtype))


def test_without_parameters_or_statistics():
    lowered(lambda x: F.batch_norm(x, None, None, training=True), torch.randn(4, 3, 5))


def test_half_precision_with_wide_parameters():
    x, *rest = operands((4, 5, 6), torch.float32)
    lowered(lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True), x.bfloat16(), *rest)


def test_channels_last():
    x, *rest = operands((4, 5, 6, 7), torch.float32)
    x = x.contiguous(memory_format=torch.channels_last)
    lowered(lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True), x, *rest)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 5), (4, 6, 8, 9)])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(shape, dtype, affine):
    x, w, b, *_ = operands(shape, dtype, 6)
    lowered(lambda x, w, b: F.group_norm(x, 3, *((w, b) if affine else ())), x, w, b)


def test_symbolic_batch():
    x, *rest = operands((4, 5, 6), torch.float32)
    others = [(torch.randn(n, 5, 9), *rest) for n in (2, 33)]
    check(lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, True), x, *rest, symbolic=True, others=others)


def changed(fn, *inputs):
    """Results and the inputs after the call are eager's."""
    compiled = fi.compile_graph(trace(fn, *(x.clone() for x in inputs)), inputs, FAST)
    mine, theirs = [x.clone() for x in inputs], [x.clone() for x in inputs]
    assert_equal(compiled(*mine), fn(*theirs))
    assert_equal(mine, theirs)


def test_running_statistics_are_updated():
    def f(x, m, v):
        return (F.batch_norm(x, m, v, training=True, momentum=0.3),)

    changed(f, torch.randn(4, 3, 5), torch.zeros(3), torch.ones(3))


def test_two_updates_of_one_buffer_and_a_read_between():
    def f(x, m, v):
        first = F.batch_norm(x, m, v, training=True)
        between = m + 1
        return F.batch_norm(first * 2 + 1, m, v, training=True), between, m * v

    changed(f, torch.randn(4, 3, 5), torch.zeros(3), torch.ones(3))


def test_statistics_that_are_no_inputs_are_left_to_aten():
    def f(x, m, v):
        return (F.batch_norm(x, m * 1, v * 1, training=True),)

    changed(f, torch.randn(4, 3, 5), torch.zeros(3), torch.ones(3))


@pytest.mark.parametrize("length", [30, 32, 1])
def test_a_large_mean_costs_no_more_than_its_own_rounding(length):
    def f(x):
        return F.batch_norm(x, None, None, training=True)

    x = torch.randn(64, 3, length) + 1e4
    (mine,) = fi.compile_graph(trace(lambda x: (f(x),), x), (x,), FAST)(x)
    assert (mine - f(x.double())).abs().max() < 2 * 1e4 * torch.finfo(torch.float32).eps


def test_statistics_that_are_results_of_the_graph():
    x, w, b, m, v = operands((2, 5, 7), torch.float32)

    def f(x, w, b, m, v):
        return F.instance_norm(x, m, v, w, b, use_input_stats=True), m, v

    check(f, x, w, b, m, v)


def evaluated(x, w, b, m, v):
    return torch.ops.aten.native_batch_norm(x, w, b, m, v, False, 0.1, 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_evaluation_on_a_gpu_is_lowered(dtype):
    with FakeTensorMode():
        inputs = [torch.empty(n, device="cuda", dtype=dtype) for n in ((6, 5, 7), 5, 5, 5, 5)]
        graph = trace(evaluated, *inputs)
    assert not fi.lower(graph, target="cuda").plan.program.fallbacks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_evaluation_returns_statistics_where_eager_does(dtype):
    """Eager's kernel of a GPU returns the statistics. The graph of the CPU gets the shapes of that kernel."""
    x, w, b, m, v = operands((6, 5, 7), dtype)
    graph = trace(evaluated, x, w, b, m, v)
    (node,) = (n for n in graph.graph.nodes if n.target is torch.ops.aten.native_batch_norm.default)
    out, mean, rstd = node.meta["val"]
    with mean.fake_mode:
        node.meta["val"] = out, *(torch.empty(5, dtype=torch.float32) for _ in range(2))
    got = fi.compile_graph(graph, (x, w, b, m, v), FAST)(x, w, b, m, v)
    wanted = evaluated(x, w, b, m, v)[0], m.float(), (v.float() + 1e-5).rsqrt()
    torch.testing.assert_close(tuple(got), wanted)
    assert got[1].data_ptr() != m.data_ptr()
