"""Errors of the functions that kernels call, in units of the last place, beside eager's.

    python packages/inductor/tests/sweeps/vector_math.py [--step 1999] [--points 3000] [--markdown]

Single precision: one number in ``--step`` of all that there are, against float64. Double precision: ``--points`` numbers of all
exponents and as many of common size, against 40 digits (mpmath). Arguments are denormal, huge, infinite and NaN too; what
eager gives for the last two has to be given. Fails above 4 units.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "testing"))

import mpmath
import numpy as np
import torch
from result_tables import Table
from scalars import kinds, trace, ulps

import fxstack_inductor as fi
from fxstack_inductor.ir.scalar_ops import TRANSCENDENTAL

UNARY = (*TRANSCENDENTAL, "sqrt", "rsqrt", "reciprocal", "sigmoid")
BINARY = ("pow", "atan2", "hypot")
LIMIT = 4
mpmath.mp.dps = 40
DIGITS = {
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x, 2),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
    "pow": mpmath.power,
}


def near_root(x):
    """Where ``lgamma`` passes through zero between poles: no function of few instructions is accurate there, eager's neither."""
    return x < 2.5


def exact(name, columns):
    """The value to 40 digits as float64, rounded once; NaN where the function is not real or not finite in float64."""
    function = DIGITS.get(name) or getattr(mpmath, name)
    results = []
    for numbers in zip(*(c.tolist() for c in columns)):
        try:
            value = function(*map(mpmath.mpf, numbers))
            results.append(float(value) if isinstance(value, mpmath.mpf) else np.nan)
        except (ValueError, ZeroDivisionError, OverflowError, mpmath.libmp.NoConvergence):
            results.append(np.nan)
    return torch.tensor(results, dtype=torch.float64)


def singles(step):
    bits = torch.arange(-(2**31), 2**31, step, dtype=torch.int64).to(torch.int32)
    return torch.cat([bits.view(torch.float32), torch.linspace(-20, 20, 500_001)])


def doubles(count):
    bits = torch.randint(-(2**63), 2**63 - 1, (count,)).view(torch.float64)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 5e-324, 1e308])
    return torch.cat([bits, torch.randn(count, dtype=torch.float64) * 4, special.double()])


def arguments(name, make, size):
    torch.manual_seed(0)
    x = make(size)
    if name not in BINARY:
        return (x,)
    y = x[torch.randperm(len(x))]
    return (x.abs(), y.clamp(-9, 9)) if name == "pow" else (x, y)


def reference(name, values):
    """In single precision: float64 of eager, whose own errors are far below."""
    if values[0].dtype is torch.float32:
        return getattr(torch, name)(*(v.double() for v in values))
    return exact(name, values)


def row(name, make, size):
    """Largest errors, ours and eager's, and how many special results are not eager's."""
    values = arguments(name, make, size)
    function = getattr(torch, name)
    options = fi.InductorOptions(use_cache=False)
    got = fi.compile_graph(trace(function, values), values, options)(*values)[0]
    want, true = function(*values), reference(name, values)
    if name == "atan2":  # 40 digits have no sign of zero
        true = torch.where((values[0] == 0) | (values[1] == 0), want.double(), true)
    usual = true.to(got.dtype).isfinite() & got.isfinite() & want.isfinite()
    if name == "lgamma":
        usual &= ~near_root(values[0])
    errors = [float(ulps(x, true)[usual].max()) for x in (got, want)]
    # Eager's sinh, cosh and lgamma are infinite before they need to be.
    other = (kinds(got) != kinds(want)).any(0) & (kinds(got) != kinds(true.to(got.dtype))).any(0)
    special = other & ~usual
    if name == "lgamma":
        special &= ~near_root(values[0])
    at = values[0][usual][ulps(got, true)[usual].argmax()].item()
    return errors, int(special.sum()), at


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--step", type=int, default=1999)
    parser.add_argument("--points", type=int, default=3000)
    args = parser.parse_args()
    bad = 0
    columns = "eager", "at", "special"
    table = Table("function", "float32: fxstack", *columns, "float64: fxstack", *columns)
    for name in (*UNARY, *BINARY):
        cells = []
        for make, size in ((singles, args.step), (doubles, args.points)):
            (ours, theirs), special, at = row(name, make, size)
            bad += ours > max(LIMIT, theirs) or special > 0
            cells += [f"{ours:.2f}", f"{theirs:.2f}", f"{at:.4g}", str(special)]
        table.row(name, *cells)
    print(f"\n{bad} above {LIMIT} units and eager, or with other special results")
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--step", "1999999", "--points", "10"]
        UNARY = UNARY[:2]
    sys.exit(main())
