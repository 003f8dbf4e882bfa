"""Matrix products as Triton kernels: values through Triton's interpreter, and which of them become kernels."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, compile_graph, decompositions, lower
from fxstack_inductor.schedule.steps import KernelStep

pytest.importorskip("triton")

F = torch.nn.functional
M, N, K = 40, 72, 56


RANDOM = torch.Generator().manual_seed(0)


def half(*shape):
    return (torch.randn(*shape, generator=RANDOM) / 2).bfloat16()


def graph_of(fn, *inputs):
    return make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)


def empty(*shape):
    return torch.empty(*shape, dtype=torch.bfloat16)


@pytest.fixture
def always(monkeypatch):
    """Every product that can be a kernel is one."""
    monkeypatch.setattr(
        "fxstack_inductor.targets.triton.lower.plan_by_cost", lambda planned, chosen, *_: planned(chosen)
    )


CASES = {
    "alone": (lambda x, w: x @ w, half(M, K), half(K, N)),
    "gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), half(M, K), half(N, K), half(N)),
    "residual": (lambda x, w, y: F.linear(x, w) + y, half(M, K), half(N, K), half(M, N)),
    "prologue": (lambda x, w: F.relu(x.float().to(x.dtype) + 2) @ w, half(M, K), half(K, N)),
    "batches": (lambda x, w: torch.tanh(x @ w.mT), half(3, M, K), half(3, N, K)),
    "shared": (lambda x, w: torch.matmul(x, w).relu(), half(2, 3, M, K), half(K, N)),
    "three": (lambda x, w: F.silu(F.linear(x, w)), half(2, M, K), half(N, K)),
    "float16": (lambda x, w: (x @ w).float() + 1, half(M, K).half(), half(K, N).half()),
    "gate": (lambda x, w, v: F.silu(x @ w) * (x @ v), half(M, K), half(K, N), half(K, N)),
    "factors": (
        lambda c, x, w: torch.baddbmm(c, x, w, beta=0.5, alpha=2.0).relu(),
        *(half(3, M, N), half(3, M, K), half(3, K, N)),
    ),
    "no addend": (
        lambda c, x, w: torch.addmm(c, x, w, beta=0).relu(),
        *(torch.full((N,), torch.nan, dtype=torch.bfloat16), half(M, K), half(K, N)),
    ),
    "transposed": (lambda x, w: (x @ w).relu().t().contiguous(), half(M, K), half(K, N)),
    "one column": (lambda x, w: (x.expand(M, K) @ w).relu(), half(M, 1), half(K, N)),
    "dequantised": (
        lambda x, w, s: (x @ (w.to(x.dtype) * s)).relu(),
        *(half(M, K), torch.randint(-2, 3, (K, N), generator=RANDOM, dtype=torch.int8), half(N)),
    ),
    "several": (lambda x, w: ((y := x @ w), y.relu(), y > 0), half(M, K), half(K, N)),
    "divided": (lambda x, w: (x @ w).relu(), half(64, 128), half(128, 32)),
    "sliced": (lambda x, w: (x[:, 1:-1] @ w[::2]).relu(), half(M, K + 2), half(2 * K, N)),
    "column": (lambda x, w, b: (x @ w) * b[:, None], half(M, K), half(K, N), half(M)),
    "picked": (
        lambda x, w, b, i: (x @ w) + b[i],
        *(half(M, K), half(K, N), half(5, N), torch.randint(0, 5, (M,), generator=RANDOM)),
    ),
    "widened": (lambda x, w: x.float() @ w.float().mT * 0.5, *(half(2, M, K), half(2, N, K))),
    "one row": (lambda x, w, y: F.linear(x, w) + y, half(1, K), half(N, K), half(1, N)),
    "one row, computed": (
        lambda x, w: F.linear(x.float().cos().to(x.dtype), w).relu(),
        half(1, K),
        half(N, K),
    ),
    "few rows": (lambda x, w: F.silu(F.linear(x, w)), half(3, K), half(N, K)),
    "to one column": (lambda x, w: torch.sigmoid(F.linear(x, w)), half(M, K), half(1, K)),
    "rows of batches": (lambda x, w: (x @ w) * 0.5, half(4, 1, K), half(4, K, N)),
    "softmax": (lambda x, w: (x @ w).float().softmax(-1), half(M, K), half(K, N)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("always")
def test_equals_eager(name):
    fn, *inputs = CASES[name]
    graph = graph_of(fn, *inputs)
    assert "tl.dot" in lower(graph, target="cuda").triton
    actual = compile_graph(graph, inputs, InductorOptions(target="cuda"))(*inputs)
    expected = fn(*inputs)
    for got, wanted in zip(actual, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert (got.dtype, got.stride()) == (wanted.dtype, wanted.stride())
        torch.testing.assert_close(got, wanted, rtol=3e-2, atol=0.2)


@pytest.mark.parametrize("name", ["gelu", "residual", "batches", "gate", "transposed", "one row", "float16"])
def test_tiles_finished_in_halves_equal_eager(name, always, monkeypatch):
    monkeypatch.setattr("fxstack_inductor.templates.product.tiling.ELEMENTS_PER_THREAD", 0)
    fn, *inputs = CASES[name]
    assert "tl.static_range(2)" in lower(graph_of(fn, *inputs), target="cuda").triton
    test_equals_eager(name)


LARGE = empty(4096, 1024), empty(1024, 4096)
SHALLOW = empty(4096, 128), empty(128, 4096)
CHOICES = {
    "what is done with the elements pays": (lambda x, w: F.gelu(x @ w), *SHALLOW, 1),
    "tiles of a deeper product ask for too much": (lambda x, w: F.gelu(x @ w), *LARGE, 0),
    "nothing is": (lambda x, w: x @ w, *LARGE, 0),
    "the library adds a bias": (lambda x, w: torch.addmm(w[0], x, w), *LARGE, 0),
    "a bias and more": (lambda x, w: torch.addmm(w[0], x, w).relu(), *SHALLOW, 1),
    "a deep product is the library's": (lambda x, w: (w @ x).relu(), empty(8192, 8192), empty(8192, 8192), 0),
    "a reduction takes another kernel": (lambda x, w: (x @ w).softmax(-1), *LARGE, 0),
    "float32": (lambda x, w: (x @ w).relu(), *(t.float() for t in LARGE), 0),
    "float32 of bfloat16": (lambda x, w: x.float() @ w.float(), *LARGE, 1),
    "float32 beside bfloat16": (lambda x, w: x @ w.float(), LARGE[0].float(), LARGE[1], 0),
    "tiny": (lambda x, w: (x @ w).relu(), empty(8, 64), empty(64, 64), 1),
    "shallow": (lambda x, w: (x @ w).relu(), empty(64, 8), empty(8, 64), 0),
    "one row": (lambda x, w: F.silu(x @ w), empty(1, 4096), empty(4096, 4096), 1),
    "one row alone": (lambda x, w: x @ w, empty(1, 4096), empty(4096, 4096), 0),
}


@pytest.mark.parametrize("name", CHOICES)
def test_chosen_where_it_pays(name):
    fn, *inputs, kernels = CHOICES[name]
    text = lower(graph_of(fn, *inputs), target="cuda:sm_90").triton
    assert text.count("tl.dot(") == kernels


def test_the_option_turns_it_off():
    graph = graph_of(lambda x, w: F.gelu(x @ w), *LARGE)
    assert "tl.dot" not in lower(graph, options=InductorOptions(templates=False), target="cuda").triton


def test_no_mask_where_tiles_divide_the_sides():
    assert "mask=" not in _only_kernel(lambda x, w: F.gelu(x @ w), *SHALLOW)
    assert "mask=" in _only_kernel(lambda x, w: F.gelu(x @ w), empty(4000, 100), empty(100, 4000))


def _only_kernel(fn, *inputs):
    lowered = lower(graph_of(fn, *inputs), target="cuda")
    (step,) = lowered.plan.steps
    assert isinstance(step, KernelStep)
    return lowered.source.functions[step.kernel.name].text


@pytest.mark.parametrize(("depth", "deep"), [(128, 128), (192, 128), (768, 256), (4000, 256)])
def test_a_small_result_keeps_most_of_the_depth_in_flight(depth, deep):
    (config,) = _configs(lambda x, w: F.gelu(x @ w), empty(128, depth), empty(depth, 192))
    assert (config.bm, config.bn, config.bk) == (16, 16, deep)


def _configs(fn, *inputs):
    functions = lower(graph_of(fn, *inputs), target="cuda:sm_90").source.functions.values()
    return [f.config for f in functions if "tl.dot(" in f.text]


def test_kernels_of_equal_text_and_other_types_are_two():
    """A conversion to float32 reads alike for both half precisions."""
    inputs = half(512, 256), half(512, 256).half()  # too many points for one launch
    lowered = lower(graph_of(lambda x, y: (x.float(), y.float()), *inputs), target="cuda")
    assert {tuple(f.signature.values())[0] for f in lowered.source.functions.values()} == {"*bf16", "*fp16"}
    assert len({f.name for f in lowered.source.functions.values()}) == 2


def test_the_report_counts_the_product():
    report = lower(graph_of(lambda x, w: F.gelu(x @ w), *SHALLOW), target="cuda:sm_90").report()
    assert "4.295 GFLOP" in report
    assert "memory" in report
