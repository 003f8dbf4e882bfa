"""Triton kernels: values through Triton's interpreter, and ahead-of-time compilation for sm_80 and sm_90."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from inductor_checks import trace
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, decompositions, lower

pytest.importorskip("triton")

from fxstack_inductor import compile_graph
from fxstack_inductor.targets.triton.lower import lower_triton
from fxstack_inductor.tiling import tiles as triton_tiles

F = torch.nn.functional
TRITON = InductorOptions(target="cuda")


def graph_of(fn, *inputs, mode="fake"):
    return make_fx(fn, decomposition_table=decompositions(), tracing_mode=mode)(*inputs)


def check(fn, *inputs, mode="fake", **tolerance):
    """Interpreted Triton equals eager, and at least one kernel ran."""
    graph = graph_of(fn, *inputs, mode=mode)
    options = TRITON
    assert lower_triton(graph, options).source.functions
    actual = compile_graph(graph, inputs, options)(*inputs)
    expected = fn(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, wanted, **tolerance)


def randn(*shape, dtype=torch.float32):
    return torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=-3, high=3)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * 2 + 1,
        lambda x: x.sin() * x.exp().log1p(),
        lambda x: F.gelu(x) + F.silu(x).tanh(),
        lambda x: torch.where(x > 0, x, x.abs().sqrt()),
        lambda x: x.t() @ x if x.dim() < 2 else x.t().contiguous() + 1,
        lambda x: x.flip(0) + x.roll(1, 1),
        lambda x: (x[1:, ::2] - x[:-1, ::2]).relu(),
        lambda x: x / 3 - x.floor().clamp(-1, 1),
    ],
)
def test_pointwise_equals_eager(fn):
    check(fn, randn(7, 10))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum(-1),
        lambda x: x.sum(0),
        lambda x: x.mean((0, 1)),
        lambda x: x.amax(1) - x.amin(0).max(),
        lambda x: x.argmax(-1),
        lambda x: x.argmin(0),
        lambda x: (x > 2).any(1),
        lambda x: (x > -4).all(),
        lambda x: x.softmax(-1),
        lambda x: F.layer_norm(x, (x.shape[-1],)) * 2,
        lambda x: x.log_softmax(0),
        lambda x: x.var(1),
        lambda x: x.prod(1),
    ],
)
def test_reductions_equal_eager(fn):
    check(fn, randn(6, 33), rtol=1e-5, atol=1e-5)


@pytest.fixture
def small_tiles(monkeypatch):
    """Rows of 900 elements take four tiles, as rows of 9,000 do: the interpreter takes seconds for these."""
    monkeypatch.setattr(triton_tiles, "PERSISTENT", 512)
    monkeypatch.setattr(triton_tiles, "TILE", 256)


def test_a_looped_reduction_equals_eager():
    check(lambda x: (x - x.mean(-1, keepdim=True)).exp().sum(-1), randn(2, 9000), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("small_tiles")
def test_a_looped_argmax_keeps_the_first_of_equals():
    x = torch.zeros(2, 900)
    x[:, [450, 490]] = 1
    check(lambda x: x.argmax(-1), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_floating_dtypes(dtype):
    check(lambda x: (x * 1.5 + 0.1).relu().sum(-1), randn(4, 20, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_integer_dtypes(dtype):
    check(lambda x: (x * 3 + 1, x // 2, x % 3, x.max()), randn(4, 20, dtype=dtype).abs())


def test_negative_integer_division_floors():
    check(lambda x: (x // 3, x % 3, x // -2, x % -2), torch.arange(-7, 8))


def test_nan_wins_maxima_and_arg_reductions():
    x = torch.tensor([[1.0, float("nan"), 3.0], [2.0, 1.0, float("inf")]])
    check(lambda x: (x.amax(1), x.argmax(1), x.relu(), torch.maximum(x, x.flip(1))), x, equal_nan=True)


def test_gathers_through_computed_indices():
    index = torch.tensor([3, 0, -1, 2])
    check(lambda x, i: x[i] * 2, randn(5, 6), index)


def test_an_element_that_a_row_s_index_names_is_loaded_once_for_the_row():
    def f(positions, ids, weight):
        return F.embedding(ids[positions], weight) * 2

    inputs = torch.randperm(40), torch.randint(0, 50, (40,)), randn(50, 96)
    check(f, *inputs)
    (kernel,) = lower_triton(graph_of(f, *inputs), TRITON).source.functions.values()
    assert re.search(r"= tl.load\(a1 \+ \(v\d+ \+ xzero\), mask=xmask,", kernel.text)


def test_sizes_are_arguments_under_symbolic_shapes():
    graph = graph_of(lambda x: (x * 2).sum(-1), randn(4, 6), mode="symbolic")
    run = compile_graph(graph, (), TRITON)
    for rows in (4, 9):
        x = randn(rows, 6)
        torch.testing.assert_close(run(x)[0], (x * 2).sum(-1))


@pytest.fixture(scope="module", params=[80, 90])
def compiled_ahead(request):
    """The capability, and facts about the machine code of the helper's kernels."""
    capability = request.param
    helper = Path(__file__).parents[1] / "helpers" / "compile_ahead.py"
    done = subprocess.run(
        [sys.executable, str(helper), str(capability)],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return capability, json.loads(done.stdout)


def test_kernels_compile_ahead_of_time(compiled_ahead):
    capability, compiled = compiled_ahead
    assert len(compiled) >= 4
    assert all(entry["cubin"] > 500 for entry in compiled.values())
    assert not {name: entry["spilled"] for name, entry in compiled.items() if entry["spilled"]}
    assert {entry["target"] for entry in compiled.values()} == {f"sm_{capability}"}


def test_division_and_square_root_round_to_nearest(compiled_ahead):
    exact = {op for entry in compiled_ahead[1].values() for op in entry["exact"]}
    assert exact == {"div.rn.f32", "sqrt.rn.f32"}


def test_products_use_matrix_instructions(compiled_ahead):
    capability, compiled = compiled_ahead
    own = {80: "mma", 90: "wgmma"}[capability]
    expected = {
        "products": [own] * 2,
        "gelu_gradients": [own],
        "one_row": ["mma"] * 2,
        "small_results": ["mma"] * 3,
    }
    for function, instructions in expected.items():
        used = [entry["matrix"] for name, entry in compiled.items() if name.startswith(f"{function}.")]
        assert used == [[instruction] for instruction in instructions], function


def test_random_numbers_and_batch_statistics_are_eager_s():
    def step(x):
        return F.dropout(x, 0.5) + F.batch_norm(x, None, None, training=True)

    x = randn(64, 64)
    run = compile_graph(trace(step, x), (x,), TRITON)
    torch.manual_seed(0)
    actual = run(x)[0]
    torch.manual_seed(0)
    torch.testing.assert_close(actual, step(x), rtol=1e-5, atol=1e-5)


def test_lower_shows_triton_without_a_gpu():
    graph = graph_of(lambda x: x.relu() + 1, randn(8))
    lowered = lower(graph, target="cuda:sm_90")
    assert "@triton.jit" in lowered.triton
    assert "def call(" in lowered.host


def test_an_unknown_target_is_named():
    with pytest.raises(ValueError, match="target 'tpu': known are 'cpu' and 'cuda'"):
        lower(graph_of(lambda x: x + 1, randn(3)), target="tpu")


def scanned(*shape, dtype=torch.float32):
    """Values with ties, and NaN where there can be one."""
    x = torch.randint(-3, 4, shape).to(dtype)
    if dtype.is_floating_point:
        x[..., shape[-1] // 2] = float("nan")
    return x


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.cumsum(-1) * 2,
        lambda x: x.sin().cumsum(0),
        lambda x: x.double().cumprod(-1),
        lambda x: torch.logcumsumexp(x, -1),
        lambda x: tuple(x.cummax(-1)),
        lambda x: tuple(x.cummin(0)),
        lambda x: x.softmax(0).flip(1).cumsum(1).flip(1),
        lambda x: (x.cumsum(1) - x.sum(1, keepdim=True)).relu(),
        lambda x: (x > 0).cumsum(-1),
    ],
)
def test_scans_equal_eager(fn):
    check(fn, randn(5, 37))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.bool])
@pytest.mark.parametrize("dim", [0, 1])
def test_running_extremes_keep_the_last_of_equals_and_nan(dtype, dim):
    check(lambda x: (*x.cummax(dim), *x.cummin(dim)), scanned(6, 11, dtype=dtype), equal_nan=True)


LONG_SCANS = {
    "sums": lambda x: x.cumsum(-1) * 2,
    "sums down": lambda x: x.mT.contiguous().cumsum(0),
    "counts": lambda x: (x > 0).cumsum(-1),
    "bytes": lambda x: x.to(torch.int8).cumsum(-1, dtype=torch.int8),
    "half": lambda x: (x > 2.9).bfloat16().cumsum(-1),
    "products": lambda x: (x / 900 + 1).double().cumprod(-1),
    "logarithms": lambda x: torch.logcumsumexp(x, -1),
    "after a reduction": lambda x: x.softmax(-1).cumsum(-1),
    "beside a reduction": lambda x: (x.cumsum(1) - x.sum(1, keepdim=True)).relu(),
    "before a reduction": lambda x: x.cumsum(1).amax(1),
    "read again": lambda x: (y := x.cumsum(1)) / y.abs().amax(1, keepdim=True),
    "two": lambda x: (x.cumsum(1), x.cummax(1)[0]),
}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", LONG_SCANS)
def test_scans_of_several_tiles_equal_eager(name):
    x = randn(2, 899)
    assert "for offset" in lower(graph_of(LONG_SCANS[name], x), target="cuda").triton
    check(LONG_SCANS[name], x, rtol=2e-4, atol=2e-3)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_long_running_extremes_keep_the_last_of_equals_and_nan(dtype):
    x = scanned(3, 900, dtype=dtype)
    check(lambda x: (*x.cummax(1), *x.cummin(1)), x, equal_nan=True)


def test_scans_of_symbolic_length_equal_eager():
    check(lambda x: (x.cumsum(0), *x.cummin(1)), randn(6, 77), mode="symbolic")


def test_scans_of_one_long_row_are_calls():
    graph = graph_of(lambda x: x.cumsum(-1) + 1, torch.zeros(1, 9000))
    (fallback,) = lower(graph, target="cuda").plan.program.fallbacks
    assert fallback.reason == "a scan over more than 8192 elements in one row on a GPU"


def test_log_sums_of_infinities():
    inf = float("inf")
    x = torch.tensor([[-inf, -inf, 1.0, 2.0], [inf, 1.0, inf, -inf], [0.0, -inf, 3.0, float("nan")]])
    check(lambda x: torch.logcumsumexp(x, 1), x, equal_nan=True)


PLACES = torch.tensor([3, 0, 3, 6, 3, 1])


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: x.scatter_add(0, i[:, None].expand(6, 5), x[:6].sin()) + 1,
        lambda x, i: x.scatter(1, i[None, :4].clamp(max=4), 3.0),
        lambda x, i: torch.zeros(7, 5).index_put((i,), x[:6], accumulate=True).relu(),
        lambda x, i: torch.zeros(7).index_put((i,), torch.tensor(1.0), accumulate=True),
        lambda x, i: x.index_add(0, i, x[:6] * 2),
        lambda x, i: x.index_put((i[3:] - 7, i[:3]), x[:3, 0]),
        lambda x, i: torch.ops.aten.embedding_dense_backward(x[:6], i, 7, 2, False),
        lambda x, i: (x * 9).long().scatter_reduce(0, i[None, :5].contiguous(), (x[:1] * 9).long(), "amax"),
    ],
)
def test_scatters_equal_eager(fn):
    x = randn(7, 5)
    graph = graph_of(fn, x, PLACES)
    assert not lower(graph, target="cuda").plan.program.fallbacks
    check(fn, x, PLACES)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: torch.zeros(7, 5, dtype=x.dtype).index_put((i,), x[:6], accumulate=True) + 1,
        lambda x, i: x.index_put((i, i.clamp(max=4)), x[:6, 0], accumulate=True),
        lambda x, i: x.index_add(1, i[:3].clamp(max=4), x[:, :3] * 2, alpha=2),
        lambda x, i: torch.ops.aten.embedding_dense_backward(x[:6], i, 7, 2, False),
        lambda x, i: torch.ops.aten.embedding_dense_backward(x[None, :6], i[None], 7, -1, False) * 2,
    ],
)
def test_half_precision_adds_in_float32(fn, dtype):
    x = randn(7, 5, dtype=dtype)
    lowered = lower(graph_of(fn, x, PLACES), target="cuda")
    assert not lowered.plan.program.fallbacks
    assert "tl.atomic_add" in lowered.triton
    check(fn, x, PLACES, rtol=0.02, atol=0.02)


def scatter_reason(fn, *inputs):
    (fallback,) = lower(graph_of(fn, *inputs), target="cuda").plan.program.fallbacks
    return fallback.reason


def test_extremes_of_floats_are_not_atomic():
    fn = lambda x, i: x.scatter_reduce(0, i, x[:6], "amin") + 1
    assert "combines torch.float32 by min" in scatter_reason(fn, randn(7), PLACES)


def test_deterministic_algorithms_are_torchs():
    torch.use_deterministic_algorithms(True)
    try:
        reason = scatter_reason(lambda x, i: x.scatter_add(0, i, x[:6]) + 1, randn(7), PLACES)
    finally:
        torch.use_deterministic_algorithms(False)
    assert "order must be fixed" in reason
