"""Split reductions: which are, and that interpreted kernels give eager's numbers."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, compile_graph, decompositions
from fxstack_inductor.ir.kernel import Load
from fxstack_inductor.lower.reductions import split
from fxstack_inductor.targets.triton.lower import lower_triton

pytest.importorskip("triton")


def check(fn, *inputs):
    """Compare with eager; returns how many kernels ran."""
    graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)
    compiled = compile_graph(graph, inputs, InductorOptions(target="cuda"))
    wanted = fn(*inputs)
    for got, want in zip(compiled(*inputs), wanted if isinstance(wanted, tuple) else (wanted,)):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    return len(compiled.lowered.plan.steps)


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum(),
        lambda x: x.amax(),
        lambda x: x.abs().amin(),
        lambda x: (x > 3).any(),
        lambda x: (x < 9).all(),
        lambda x: (x * 0.001 + 1).prod(),
        lambda x: x.flip(0).sum(),
        lambda x: x.bfloat16().sum(),
        lambda x: (x * 8).int().sum(),
        lambda x: (x * 8).int().amax(),
    ],
)
@pytest.mark.parametrize("shape", [(16384,), (3, 4567), (2, 64, 65)])
def test_whole_reductions_take_two_kernels(fn, shape):
    assert check(fn, randn(*shape)) == 2


def test_columns_take_two_kernels():
    assert check(lambda x: x.sum(0), randn(600, 70)) == 2
    assert check(lambda x: x.sum((0, 1)), randn(9, 61, 40)) == 2


def gradients_of_bias(x):
    """Sums over a batch and positions, of heads that a view puts side by side."""
    return x.transpose(1, 2).reshape(-1, x.shape[1] * x.shape[3]).sum(0)


@pytest.mark.parametrize("x", [randn(5, 3, 183, 16), randn(5, 183, 3, 16).transpose(1, 2)])
def test_columns_of_reshaped_tensors_take_two_kernels(x):
    assert check(gradients_of_bias, x) == 2


def test_columns_of_a_symbolic_view_equal_eager():
    graph = make_fx(gradients_of_bias, tracing_mode="symbolic")(x := randn(2, 3, 300, 16))
    (got,) = compile_graph(graph, (x,), InductorOptions(target="cuda"))(x)
    torch.testing.assert_close(got, gradients_of_bias(x), rtol=1e-4, atol=1e-4)


def test_short_columns_take_one_kernel_with_narrow_tiles():
    assert check(lambda x: x.sum(0), randn(512, 70)) == 1
    graph = make_fx(lambda x: x.sum(0), tracing_mode="fake")(randn(512, 192))
    (function,) = lower_triton(graph, InductorOptions()).source.functions.values()
    assert function.tiling.grid.as_int() == 192 // 16


def test_columns_stay_neighbours():
    graph = make_fx(lambda x: x.sum(0), tracing_mode="fake")(randn(8192, 4096))
    partial = lower_triton(graph, InductorOptions()).plan.steps[0].kernel
    indices = [v.index for v in partial.values if isinstance(v, Load)]
    indices += [store.index for store in partial.stores]
    assert [index.coefficient(partial.outer[-1].var) for index in indices] == [1, 1]


def test_statistics_share_their_parts():
    assert check(lambda x: (x.sum(0), x.square().sum(0)), randn(600, 70)) == 2


@pytest.mark.parametrize("shape", [(600, 4096), (4, 100), (4, 8192)])
def test_what_fills_the_device_or_is_short_is_not_split(shape):
    assert check(lambda x: x.sum(-1), randn(*shape)) == 1


def per_channel(x, a, b, c):
    """Sums over a batch and points, with numbers of each channel: gradients of a batch norm."""
    centred = (x - a[:, None]) * b[:, None]
    return centred.sum((0, 2)), (centred * x).sum((0, 2)) + c


@pytest.mark.parametrize(("channels", "programs"), [(256, [256]), (4, [64, 8])])
def test_numbers_of_channels_do_not_decide_the_tiles(channels, programs):
    inputs = randn(8, channels, 4096), *(randn(channels) for _ in range(3))
    lowered = lower_triton(make_fx(per_channel, tracing_mode="fake")(*inputs), InductorOptions(target="cuda"))
    assert [f.tiling.grid.as_int() for f in lowered.source.functions.values()] == programs


def test_sums_per_channel_equal_eager():
    assert check(per_channel, randn(3, 4, 4096), *(randn(4) for _ in range(3))) == 2


def split_from(monkeypatch, row):
    """Let programs reduce ``row`` elements at least, and any number of them be split."""
    monkeypatch.setattr(split, "ROW", row)
    monkeypatch.setattr(split, "WHOLE", 0)
    monkeypatch.setattr(split, "SHORT_COLUMN", 0)


def spiked(*shape, value=float("nan")):
    x = randn(*shape)
    x.view(-1)[20::70] = value
    return x


@pytest.mark.parametrize("fn", [torch.argmax, torch.argmin])
@pytest.mark.parametrize(
    "x",
    [
        (randn(3, 301) * 3).int(),
        randn(3, 301).bfloat16(),
        spiked(3, 301),
        spiked(2, 301, value=float("inf")),
        torch.full((1, 256), float("-inf")),
        torch.zeros(130, 3),
        randn(1, 400),
    ],
    ids=lambda x: f"{tuple(x.shape)}-{x.dtype}",
)
def test_positions_of_few_long_rows_take_two_kernels(fn, x, monkeypatch):
    """What is long is made short: Triton's interpreter reduces positions one by one."""
    split_from(monkeypatch, 64)
    assert check(lambda x: fn(x, -1 if x.shape[-1] > 3 else 0), x) == 2


def test_the_value_beside_its_position_is_split_once(monkeypatch):
    split_from(monkeypatch, 64)
    assert check(lambda x: tuple(x.max(-1)), randn(2, 300)) <= 3


def test_the_position_in_the_whole(monkeypatch):
    split_from(monkeypatch, 64)
    assert check(torch.argmax, randn(3, 5, 30)) == 2


def normalised(x, w, b):
    return torch.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)


CENTRED = {
    "logsumexp": (lambda x: x.logsumexp(-1), (4, 9001)),
    "variance of rows": (lambda x: x.var(-1), (3, 16384)),
    "variance of columns": (lambda x: x.std(0), (600, 70)),
}


@pytest.mark.parametrize("name", CENTRED)
def test_a_sum_that_depends_on_another_is_split_beside_it(name):
    fn, shape = CENTRED[name]
    assert check(fn, randn(*shape) + 5) == 2


def test_statistics_of_a_batch_take_two_kernels_beside_the_result():
    assert check(normalised, randn(8, 6, 32, 33) * 3 + 40, randn(6), randn(6)) == 3


@pytest.mark.parametrize("count", [9001, 20001, 40000, 99999])
def test_no_part_is_empty(count):
    """512 parts of 79 elements are more than 40000: the last ones would have none, and a variance would count them."""
    graph = make_fx(lambda x: x.sum(0), tracing_mode="fake")(randn(count, 2))
    kernel = lower_triton(graph, InductorOptions(target="cuda")).plan.steps[0].kernel
    parts, size = kernel.outer[0].extent.as_int(), kernel.inner[0].extent.as_int()
    assert (parts - 1) * size < count


@pytest.mark.parametrize("shape", [(1, 65536), (9001, 3)])
def test_a_large_mean_costs_no_digits_in_parts(shape):
    """A rounded mean of a part is corrected; the mean of all elements is rounded, too, which costs some units."""
    x, dim = randn(*shape) + 1e4, -1 if shape[-1] > shape[0] else 0
    graph = make_fx(lambda x: x.var(dim), decomposition_table=decompositions(), tracing_mode="fake")(x)
    (got,) = compile_graph(graph, (x,), InductorOptions(target="cuda"))(x)
    torch.testing.assert_close(got.double(), x.double().var(dim), rtol=3e-6, atol=0)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), float("-inf"), 1e4], ids=["nan", "inf", "-inf", "large"]
)
@pytest.mark.parametrize("fn", [lambda x: x.logsumexp(-1), lambda x: x.log_softmax(-1), lambda x: x.var(-1)])
@pytest.mark.parametrize("place", [slice(20, None, 70), slice(None), slice(64, 128), slice(1, None)])
def test_special_values_in_parts_equal_eager(fn, value, place, monkeypatch):
    split_from(monkeypatch, 64)
    x = randn(3, 301)
    x[0, place] = value
    graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(x)
    (got,) = compile_graph(graph, (x,), InductorOptions(target="cuda"))(x)
    torch.testing.assert_close(got, fn(x), rtol=1e-4, atol=1e-4, equal_nan=True)
