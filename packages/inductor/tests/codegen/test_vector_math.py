"""The vector math for C libraries without any: every function against float64, over all exponents."""

import numpy as np
import pytest
import torch
from inductor_checks import FAST
from scipy import special

from fxstack_inductor.codegen.c.module import PRELUDE
from fxstack_inductor.runtime.loader import load_functions

REFERENCES = {"expf": np.exp, "tanhf": np.tanh, "erff": special.erf}


@pytest.fixture(scope="module")
def functions():
    loops = [
        f"void {name}_all(const float* x, float* y, int64_t n) "
        f"{{ for (int64_t i = 0; i < n; i++) y[i] = fast_{name}(x[i]); }}"
        for name in REFERENCES
    ]
    loops += [
        "void exp_all(const double* x, double* y, int64_t n) { for (int64_t i = 0; i < n; i++) y[i] = fast_exp(x[i]); }"
    ]
    names = {f"{name}_all": 3 for name in [*REFERENCES, "exp"]}
    return load_functions("\n".join([PRELUDE, *loops]), names, FAST)


def every_kind_of_float():
    bits = torch.arange(-(2**31), 2**31, 2039, dtype=torch.int64).to(torch.int32)
    common = torch.linspace(-12, 12, 1_000_001)
    return torch.cat([bits.view(torch.float32), common]).nan_to_num(0, torch.inf, -torch.inf)


@pytest.mark.parametrize("name", REFERENCES)
def test_at_most_two_ulp(functions, name):
    x = every_kind_of_float()
    y = torch.empty_like(x)
    functions[f"{name}_all"](x.data_ptr(), y.data_ptr(), x.numel())
    with np.errstate(over="ignore", under="ignore"):
        exact = REFERENCES[name](x.double().numpy())
        near = exact.astype(np.float32)
    finite = np.isfinite(near)
    assert (y.numpy()[~finite] == near[~finite]).all()
    spacing = np.spacing(np.maximum(np.abs(near[finite]), np.float32(2.0**-126))).astype(float)
    assert (np.abs(y.numpy()[finite] - exact[finite]) / spacing).max() <= 2


@pytest.mark.parametrize("name", REFERENCES)
def test_signed_zero_infinity_and_nan(functions, name):
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])
    y = torch.empty_like(x)
    functions[f"{name}_all"](x.data_ptr(), y.data_ptr(), x.numel())
    want = torch.tensor(REFERENCES[name](x.double().numpy())).float()
    torch.testing.assert_close(y, want, rtol=0, atol=0, equal_nan=True)
    assert (y.signbit() == want.signbit())[:4].all()


def test_exponentials_of_doubles_end_as_eagers(functions):
    edges = [-746.0, -745.2, -745.1, -720.0, -700.0, 0.0, -0.0, 709.78, 709.79, 1e300]
    x = torch.cat(
        [torch.linspace(-760, 720, 1_000_003, dtype=torch.float64), torch.tensor(edges, dtype=torch.float64)]
    )
    y = torch.empty_like(x)
    functions["exp_all"](x.data_ptr(), y.data_ptr(), x.numel())
    torch.testing.assert_close(y, x.exp(), rtol=1e-15, atol=1e-323)
    ends = torch.tensor([torch.inf, -torch.inf, torch.nan], dtype=torch.float64)
    functions["exp_all"](ends.data_ptr(), y.data_ptr(), 3)
    torch.testing.assert_close(y[:3], ends.exp(), rtol=0, atol=0, equal_nan=True)
