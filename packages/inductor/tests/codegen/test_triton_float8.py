"""8-bit floats in Triton kernels: every bit pattern, and every rounding, as torch has them."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, compile_graph, decompositions
from fxstack_inductor.schedule.steps import KernelStep

pytest.importorskip("triton")
FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


def run(fn, *inputs, kernels=1):
    """Bits and values equal eager's; everything is in ``kernels`` kernels."""
    graph = make_fx(fn, decomposition_table=decompositions(), tracing_mode="fake")(*inputs)
    compiled = compile_graph(graph, inputs, InductorOptions(target="cuda"))
    steps = compiled.lowered.plan.steps
    assert (len(steps), all(isinstance(s, KernelStep) for s in steps)) == (kernels, True)
    wanted = fn(*inputs)
    for got, want in zip(compiled(*inputs), wanted if isinstance(wanted, tuple) else (wanted,)):
        assert (got.dtype, got.stride()) == (want.dtype, want.stride())
        if want.dtype in FLOAT8:
            assert torch.equal(got.view(torch.uint8), want.view(torch.uint8))
        else:
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def borders():
    """Numbers at, between and just beside all that 8 bits hold, with both signs, and what is beyond."""
    every = torch.arange(256, dtype=torch.uint8)
    held = torch.cat([every.view(dtype).float() for dtype in FLOAT8])
    held = held[held.isfinite() & (held >= 0)].unique()
    middle = (held[1:] + held[:-1]) / 2
    exact = torch.cat([held, middle, torch.tensor([464.0, 480.0, 61440.0, 1e30, torch.inf, torch.nan])])  # fmt: skip
    beside = [exact.nextafter(torch.tensor(x)) for x in (0.0, torch.inf)]
    found = torch.cat([exact, *beside])
    return torch.cat([found, -found])


@pytest.mark.parametrize("dtype", FLOAT8)
def test_all_roundings_are_torchs(dtype):
    run(lambda x: x.to(dtype), borders())


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("to", [torch.float32, torch.bfloat16, torch.float16])
def test_all_numbers_are_read(dtype, to):
    run(lambda x: x.to(to), torch.arange(256, dtype=torch.uint8).view(dtype))


@pytest.mark.parametrize("dtype", FLOAT8)
def test_what_is_rounded_on_the_way_is_rounded(dtype):
    run(lambda x: (x.to(dtype).float() * 3, x.to(dtype)), torch.randn(300).bfloat16() * 300)


@pytest.mark.parametrize("source", [torch.float64, torch.int32, torch.bool])
def test_other_dtypes_are_converted(source):
    run(lambda x: x.to(torch.float8_e4m3fn), (torch.randn(100) * 50).to(source))


def test_scaling_is_fused():
    def quantise(x):
        scale = 448 / x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12)
        return (x * scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale.reciprocal()

    run(quantise, torch.randn(4, 16).bfloat16())


def test_transposed_views_are_read_in_place():
    run(lambda x: x.t().float() + 1, torch.randn(8, 16).to(torch.float8_e5m2))


def test_what_kernels_do_not_do_with_them_is_left_to_aten():
    x = torch.randn(8).to(torch.float8_e4m3fn)
    graph = make_fx(lambda x: torch.cat([x, x]), tracing_mode="fake")(x)
    compiled = compile_graph(graph, (x,), InductorOptions(target="cuda"))
    (result,) = compiled(x)
    assert torch.equal(result.view(torch.uint8), torch.cat([x, x]).view(torch.uint8))
