"""Reductions that depend on a reduction of the same value take one pass over long rows, with eager's results."""

import pytest
import torch
from inductor_checks import trace
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, compile_graph, decompositions
from fxstack_inductor.lower.reductions import split
from fxstack_inductor.targets.triton.lower import lower_triton
from fxstack_inductor.tiling import tiles

pytest.importorskip("triton")

F = torch.nn.functional
INF, NAN = float("inf"), float("nan")
SUMS = {
    "logsumexp": lambda x: x.logsumexp(-1),
    "sum of exp": lambda x: (x - x.amax(-1, keepdim=True)).exp().sum(-1),
    "variance": lambda x: x.var(-1),
    "mean and deviation": lambda x: torch.std_mean(x, -1),
}
ROWS = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "scaled": lambda x: (x * 2).softmax(-1),
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Rows of 900 elements take four tiles, as rows of 9,000 do."""
    monkeypatch.setattr(tiles, "PERSISTENT", 512)
    monkeypatch.setattr(tiles, "TILE", 256)


def check(fn, x, passes, **tolerance):
    """Interpreted kernels equal eager, and take ``passes`` loops over the elements."""
    graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(x)
    options = InductorOptions(target="cuda")
    functions = lower_triton(graph, options).source.functions.values()
    assert [f.text.count("for offset in range") for f in functions] == [passes]
    got, wanted = compile_graph(graph, (x,), options)(x), fn(x)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, **tolerance)


def rows(dtype=torch.float32):
    return torch.randn(3, 900, dtype=dtype, generator=torch.Generator().manual_seed(0)) * 4


def row(**values):
    """A row of numbers with others at some positions, for example ``at_5=inf``; ``rest`` replaces the numbers."""
    x = rows()[:1]
    if "rest" in values:
        x[:] = values.pop("rest")
    for name, value in values.items():
        x[:, int(name.removeprefix("at_"))] = value
    return x


SPECIAL = {
    "all -inf": row(rest=-INF),
    "one number": row(rest=-INF, at_700=3.0),
    "inf": row(at_3=INF),
    "inf in two tiles": row(at_3=INF, at_259=INF, at_260=INF),
    "all inf": row(rest=INF),
    "both infinities": row(at_1=-INF, at_700=INF),
    "-inf": row(at_3=-INF),
    "-inf first": torch.cat([row(rest=-INF)[:, :300], rows()[:1, :600]], 1),
    "nan": row(at_700=NAN),
    "nan first": row(at_0=NAN),
    "equal": row(rest=7.0),
    "far from the first": row(rest=1000.0, at_0=-1000.0),
    "squares overflow": row(at_0=3e25, at_700=-3e25),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SUMS)
def test_sums_take_one_pass(name, dtype):
    check(SUMS[name], rows(dtype), 1)


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_read_once_for_the_sums_and_once_for_the_result(name):
    check(ROWS[name], rows(), 2)


def test_half_precision_is_summed_in_float32():
    check(lambda x: x.logsumexp(-1), rows(torch.bfloat16), 1)


@pytest.mark.parametrize("name", ["logsumexp", "sum of exp", "variance"])
@pytest.mark.parametrize("values", SPECIAL)
def test_special_values_equal_eager(name, values):
    check(SUMS[name], SPECIAL[values], 1)


@pytest.mark.parametrize("fn", [lambda x: x.var(0), lambda x: x.logsumexp(0)])
def test_columns_take_one_pass(fn, monkeypatch):
    monkeypatch.setattr(split, "SHORT_COLUMN", 900)
    check(fn, torch.randn(900, 40) + 5, 1, rtol=1e-4, atol=1e-4)


def test_a_large_mean_costs_no_digits():
    x = rows() / 4 + 1e4
    check(lambda x: x.var(-1), x, 1, rtol=2e-6, atol=0)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x - x.amin(-1, keepdim=True)).exp().sum(-1),
        lambda x: (2 * x - x.amax(-1, keepdim=True)).exp().sum(-1),
        lambda x: (x - x.amax(-1, keepdim=True)).sum(-1),
    ],
)
def test_other_sums_keep_their_pass(fn):
    check(fn, rows() / 8, 2, rtol=1e-4, atol=1e-4)


def test_positions_do_not_hide_loops():
    """The reduction's position is 2, like that of the third loop."""
    graph = trace(lambda x: x.argmax(-1), x := torch.randn(4, 5, 6, 901)[:, :4, :5, :900])
    (got,) = compile_graph(graph, (x,), InductorOptions(target="cuda"))(x)
    assert torch.equal(got, x.argmax(-1))
