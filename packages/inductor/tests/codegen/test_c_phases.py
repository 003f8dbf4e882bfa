"""Slow functions of pooled planes: one loop over a plane behind the parts of its rows."""

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import FAST, check, trace

import fxstack_inductor as fi

X = torch.rand(3, 5, 14, 14, generator=torch.Generator().manual_seed(2))
PROGRAMS = {
    "silu of a pool": lambda x: F.silu(F.max_pool2d(x, 3, 1, 1)),
    "two functions": lambda x: (lambda v: (v.tanh() * v.exp(), v + 1))(F.avg_pool2d(x, 3, 1, 1)),
    "a residual": lambda x: F.gelu(F.max_pool2d(x, 3, 1, 1)) + x,
    "a shift": lambda x: (F.pad(x, (1, 1, 1, 1))[..., :-2, :-2] + x).sigmoid(),
    "a row beside": lambda x: (F.pad(x, (1, 0)).narrow(-1, 0, 14) + x).sin() * x[0, 0, 0],
    "long rows": lambda x: F.silu(F.max_pool2d(x.reshape(15, 2, 98), 3, 1, 1)),
    "smaller planes": lambda x: F.max_pool2d(x, 3, 2, 1).exp(),
}
IN_PHASES = {"silu of a pool", "two functions", "a residual", "a shift", "long rows", "smaller planes"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name, dtype):
    check(PROGRAMS[name], X.to(dtype))
    check(PROGRAMS[name], X.to(dtype).transpose(-1, -2))


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_have_one_loop(name):
    text = fi.lower(trace(PROGRAMS[name], X), options=FAST).c.partition("void kernel_0")[2]
    functions = max(text.count(f"{name}f(") for name in ("exp", "tanh", "erf", "sin"))
    assert (functions == 1) == (name in IN_PHASES)


def test_special_numbers():
    x = X.clone()
    x[0, 0, ::3] = torch.nan
    x[1, :, 5] = torch.inf
    x[2, :, :, 13] = -torch.inf
    check(PROGRAMS["silu of a pool"], x)


def test_a_plane_too_large_for_the_cache_has_no_arrays():
    text = fi.lower(trace(PROGRAMS["silu of a pool"], torch.randn(9, 2, 70, 70)), options=FAST).c
    assert text.partition("void kernel_0")[2].count("expf(") > 1
