"""Which tiles a kernel gets; ``test_triton`` shows that the values are right."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, decompositions
from fxstack_inductor.targets.triton.lower import lower_triton


def tilings(fn, *inputs):
    graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)
    return [f.tiling for f in lower_triton(graph, InductorOptions()).source.functions.values()]


CASES = {
    "flat": lambda x: x.relu() + 1,
    "tiled": lambda x: x.t() + x.t().contiguous().relu().reshape(x.shape[1], x.shape[0]),
    "persistent": lambda x: x.softmax(-1),
}


@pytest.mark.parametrize("kind", ["flat", "persistent"])
def test_kinds(kind):
    assert {t.kind for t in tilings(CASES[kind], torch.empty(300, 200))} == {kind}


def test_long_rows_are_looped():
    assert tilings(lambda x: x.argmax(-1), torch.empty(1000, 9000))[0].kind == "looped"


def test_a_transpose_spans_two_axes():
    (tiling,) = tilings(lambda x: x.t().contiguous() + 1, torch.empty(300, 200))
    assert tiling.kind == "tiled"
    assert tiling.grid == -(-300 // tiling.config.xblock) * -(-200 // tiling.config.rblock)


def test_a_short_side_is_no_axis():
    assert tilings(lambda x: x.t().contiguous() + 1, torch.empty(300, 3))[0].kind == "flat"


def test_half_precision_gets_wider_tiles():
    narrow = torch.empty(3000, 2000, dtype=torch.bfloat16)
    (tiling,) = tilings(lambda x: x.t().contiguous() + 1, narrow)
    assert (tiling.config.xblock, tiling.config.rblock) == (64, 64)


def test_a_small_transpose_is_spread_over_the_device():
    (tiling,) = tilings(lambda x: x.t().contiguous() + 1, torch.empty(300, 200))
    assert (tiling.config.xblock, tiling.config.rblock) == (32, 32)


def test_many_buffers_shrink_the_tile():
    tensors = [torch.empty(1 << 20) for _ in range(20)]
    tiles = tilings(lambda *xs: (sum(xs),), *tensors)
    assert [t.config.xblock for t in tiles] == [512]


def test_few_rows_are_spread_over_the_device():
    (few,) = tilings(lambda x: x.softmax(-1), torch.empty(300, 100))
    (many,) = tilings(lambda x: x.softmax(-1), torch.empty(30_000, 100))
    assert (few.config.xblock, few.config.num_warps) == (1, 2)
    assert (many.config.xblock, many.config.num_warps) == (16, 4)


def test_few_points_are_spread_over_the_device():
    sizes = (1, 5000, 60_000, 1 << 20)
    tiles = [tilings(lambda x: x.relu() + 1, torch.empty(size))[0] for size in sizes]
    assert [t.config.xblock for t in tiles] == [128, 128, 128, 1024]


def test_few_rows_get_more_warps():
    tiles = [tilings(lambda x: x.softmax(-1), torch.empty(100, size))[0] for size in (32, 128, 256, 1024)]
    assert [t.config.num_warps for t in tiles] == [1, 2, 4, 8]
    (columns,) = tilings(lambda x: x.sum(0), torch.empty(128, 192))
    assert (columns.grid, columns.config.num_warps) == (12, 16)


def test_columns_stay_together():
    (tiling,) = tilings(lambda x: x.sum(0), torch.empty(30, 100))
    assert tiling.config.xblock == 16


def test_many_rows_of_columns_are_looped_over_runs():
    (tiling,) = tilings(lambda x: x.sum(0), torch.empty(1000, 30_000))
    assert (tiling.kind, tiling.config.xblock, tiling.config.rblock) == ("looped", 64, 32)
    narrow, _ = tilings(lambda x: x.sum(0), torch.empty(200_000, 8))
    assert (narrow.kind, narrow.config.xblock, narrow.config.rblock) == ("looped", 8, 256)


def test_what_columns_are_normalised_by_is_read_once():
    (tiling,) = tilings(lambda x: x.softmax(0), torch.empty(500, 30_000))
    assert (tiling.kind, tiling.config.xblock) == ("persistent", 16)


def test_what_repeats_along_rows_makes_tiles_of_rows():
    (tiling,) = tilings(lambda x, y: (x + y, y.exp()), torch.empty(30, 200), torch.empty(30, 1))
    assert (tiling.kind, tiling.config.rblock) == ("tiled", 32)
    (tiling,) = tilings(lambda x, y: (x + y, y.exp()), torch.empty(30, 201), torch.empty(30, 1))
    assert tiling.kind == "flat"
    assert not tiling.kernel.inner
