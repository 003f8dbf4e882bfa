"""Every elementwise operator of torch's database on special numbers and over its range, against eager and a finer reference.

    python packages/inductor/tests/sweeps/scalars.py [--dtypes float32,float64] [--ops PATTERN] [--table]

Unary operators see zeros of both signs, infinities, NaN, denormal numbers, the extremes of the dtype, what lies around whole
and half numbers, and numbers of every exponent; binary operators all pairs of a selection of these. Integers and booleans
have to be eager's, floats as well where eager gives NaN, infinity or zero; other floats have to be within ``--ulp`` units in
the last place of the reference (float64 for narrower dtypes, eager for float64), or not much further from it than eager is
on similar numbers, since compositions of functions are as inexact in eager. ``--table`` prints the largest errors, ours and
eager's, as Markdown.
"""

import argparse
import itertools
import re
import sys
import time
import warnings

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

import fxstack_inductor as fi

warnings.filterwarnings("ignore")
common_utils.extract_test_fn = lambda: None
INTEGERS = {torch.float64: torch.int64, torch.float32: torch.int32}
INTEGERS |= dict.fromkeys((torch.float16, torch.bfloat16), torch.int16)
SPECIAL = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 0.5, -0.5, 1.5, -1.5, 2.5, 1.0, -1.0]
SPECIAL += [2.0, -2.0, 3.0, -3.0, 7.0, 1e-3, -1e-3, 88.7, -87.4, 1e10, -1e10, 0.9999, 1.0001]
BATCH = 12
WINDOW = 32
ENDLESS = re.compile("polynomial|zeta|polygamma|^lcm")
"""Calls of ATen kernels that take as long as their argument is large, or (``lcm`` of the least integers) end the process."""


DIVIDES = re.compile("rounding$|floor_divide|fmod|remainder|mod__")
"""Integers that end the process in eager (the least by -1), or raise for all (by 0)."""
CANCELS = re.compile("ndtr|logaddexp|tanhshrink|lgamma|entr|logit")
"""Differences of nearly equal numbers: what counts is the error beside these."""
EITHER_ZERO = re.compile("softshrink|^max|^min")
"""Eager's vectors and what remains of a row beside them give zeros of different signs."""


def remainder(a, b):
    """With the divisor's sign, as eager; a zero keeps the dividend's."""
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


EXACT = {
    "fmod": np.fmod,
    "remainder": lambda a, b: remainder(a, b),
    "__rmod__": lambda a, b: remainder(b, a),
    "log1p": np.log1p,
}
"""References where eager's vectors in float64 are wrong: NaN for large quotients, zero for denormal numbers."""


def floats(dtype, count):
    """Special numbers, their neighbours, ``count`` numbers of all exponents and as many of common size."""
    info, integer = torch.finfo(dtype), INTEGERS[dtype]
    base = torch.tensor([*SPECIAL, info.max, info.min, info.tiny, -info.tiny, info.eps], dtype=dtype)
    last = torch.tensor([1, -1], dtype=integer)
    near = torch.cat([(base.view(integer) + k).view(dtype) for k in last])
    least = torch.tensor([1, -(2 ** (8 * dtype.itemsize - 1)) + 1], dtype=integer).view(dtype)
    limits = torch.iinfo(integer)
    bits = torch.randint(limits.min, limits.max, (count,), dtype=integer).view(dtype)
    return torch.cat([base, near, least, bits, (torch.randn(count, dtype=torch.float64) * 4).to(dtype)])


def numbers(dtype, count):
    if dtype is torch.bool:
        return torch.tensor([True, False] * 9)
    if dtype.is_floating_point:
        return floats(dtype, count)
    info = torch.iinfo(dtype)
    some = [0, 1, 2, 3, 5, 7, 8, 31, 32, 63, 64, info.max, info.max - 1, info.min, info.min + 1]
    some += [] if dtype is torch.uint8 else [-1, -2, -3, -8, -64]
    drawn = torch.randint(info.min, info.max, (count,), dtype=dtype)
    return torch.cat([torch.tensor(some, dtype=dtype), drawn])


def pairs(dtype):
    x = numbers(dtype, 12)
    two = torch.tensor(list(itertools.product(range(len(x)), repeat=2)))
    return x[two[:, 0]].clone(), x[two[:, 1]].clone()


def inputs(op, dtype, count):
    if isinstance(op, BinaryUfuncInfo):
        x, y = pairs(dtype)
        if not dtype.is_floating_point and DIVIDES.search(name_of(op)):
            x, y = (torch.where((v == -1) | (v == 0), 3, v).to(dtype) for v in (x, y))
        return x, y
    return (numbers(dtype, count),)


def ulps(got, reference):
    """Distances in units of the last place of ``got``'s dtype."""
    info = torch.finfo(got.dtype)
    exponent = torch.frexp(reference.double()).exponent.clamp_min(-1021)
    spacing = torch.ldexp(torch.tensor(info.eps, dtype=torch.float64), exponent - 1)
    least = torch.tensor(info.smallest_normal * info.eps, dtype=torch.float64)
    error = (got.double() - reference.double()).abs() / spacing.clamp_min(least)
    return error.nan_to_num(0, 0, 0)


def kinds(x):
    """What kind of number each is; signs of zero count."""
    zero = x == 0
    return torch.stack([zero & x.signbit(), zero & ~x.signbit(), x.isnan(), x.isposinf(), x.isneginf()])


def around(errors, values):
    """The largest error among similar arguments; among all for two arguments."""
    if len(values) > 1 or errors.numel() < 2 * WINDOW:
        return errors.max().expand_as(errors)
    order = values[0].flatten().argsort()
    flat = errors.flatten()[order].view(1, 1, -1)
    wide = torch.nn.functional.max_pool1d(flat, 2 * WINDOW + 1, 1, WINDOW).flatten()
    return torch.empty_like(wide).index_copy_(0, order, wide).view_as(errors)


def show(values, where, results):
    at = int(where.flatten().nonzero()[0])
    shown = ", ".join(repr(v.flatten()[at].item()) for v in values)
    return f"({shown}) -> {results[0].flatten()[at].item()!r}, not {results[1].flatten()[at].item()!r}"


def difference(name, got, want, exact, values, limit):
    """None or the first difference, and the errors of both."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{tuple(got.shape)}, not {want.dtype}{tuple(want.shape)}", (0, 0)
    if not got.is_floating_point():
        wrong = got != want
        return wrong_at(wrong, values, got, want), (0, 0)
    ours, theirs = ulps(got, exact), ulps(want, exact)
    largest = ours.max().item(), theirs.max().item()
    far = ours > 2 * around(theirs, values) + limit
    cancelled = torch.zeros_like(far)
    if CANCELS.search(name):
        beside = 1 + sum(v.double().abs() for v in values)
        cancelled = (got - exact).abs() <= 4 * torch.finfo(got.dtype).eps * beside
    other = (kinds(got) != kinds(want)).any(0)
    # Where eager's vector function fails, the reference decides; nor does it matter which neighbour of a limit is taken.
    other &= (kinds(got) != kinds(exact.to(got.dtype))).any(0)
    other &= ~((ours <= 1) & (theirs <= 1) & (exact != 0) & exact.isfinite())
    if EITHER_ZERO.search(name.rpartition(".")[2]):
        other &= (got != 0) | (want != 0)
    problems = (wrong_at(wrong & ~cancelled, values, got, want) for wrong in (other, far))
    return next(filter(None, problems), None), largest


def wrong_at(wrong, values, got, want):
    return f"{int(wrong.sum())} wrong: {show(values, wrong, (got, want))}" if wrong.any() else None


def reference(op, values, want):
    """The results in a finer dtype, if there is one."""
    if not want.is_floating_point():
        return want
    wide = [widened(v) for v in values]
    if op.name in EXACT:
        with np.errstate(all="ignore"):
            return torch.from_numpy(EXACT[op.name](*(v.double().numpy() for v in wide)))
    try:
        return widened(op.op(*wide))
    except RuntimeError:
        return want


def widened(x):
    return x if x.dtype is torch.bool else x.double()


def trace(function, values):
    raw = torch.func.functionalize(make_fx(function, tracing_mode="fake")(*values), remove="mutations")
    return make_fx(raw, decomposition_table=fi.decompositions(), tracing_mode="fake")(*values)


def name_of(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def usable(op, dtype, count):
    torch.manual_seed(0)
    values = inputs(op, dtype, count)
    try:
        want = op.op(*values)
        trace(op.op, values)
    except Exception:
        return None
    if not isinstance(want, torch.Tensor) or want.is_complex():
        return None
    return op, values, want


def check(batch, args):
    """Results of some operators, which are one graph."""
    sizes = [len(values) for _, values, _ in batch]
    flat = [v for _, values, _ in batch for v in values]

    def together(*tensors):
        rest = list(tensors)
        return tuple(op.op(*[rest.pop(0) for _ in range(n)]) for (op, _, _), n in zip(batch, sizes))

    compiled = fi.compile_graph(trace(together, flat), flat, args.options)
    found = []
    for (op, values, want), got in zip(batch, compiled(*flat)):
        name, exact = name_of(op), reference(op, values, want)
        found.append((name, *difference(name, got, want, exact, values, args.ulp)))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--dtypes", default="float32,float64,bfloat16,float16,int64,int32,int16,int8,uint8,bool"
    )
    parser.add_argument("--ops", default="")
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--ulp", type=float, default=4)
    parser.add_argument("--eager-rounding", action="store_true")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    args.options = fi.InductorOptions(optimization=2, use_cache=False, eager_rounding=args.eager_rounding)
    start, checked, bad = time.time(), 0, 0
    chosen = [op for op in op_db if isinstance(op, (UnaryUfuncInfo, BinaryUfuncInfo))]
    chosen = [op for op in chosen if re.search(args.ops, name_of(op))]
    chosen = [op for op in chosen if not ENDLESS.search(op.name)]
    for text in args.dtypes.split(","):
        dtype = getattr(torch, text)
        ready = [usable(op, dtype, args.count) for op in chosen if op.supports_dtype(dtype, "cpu")]
        ready = [r for r in ready if r is not None]
        for first in range(0, len(ready), BATCH):
            for name, problem, errors in check(ready[first : first + BATCH], args):
                checked += 1
                if problem:
                    bad += 1
                    print(f"{name} {text}: {problem}", flush=True)
                elif args.table and max(errors) > 0:
                    print(f"| {name} | {text} | {errors[0]:.2f} | {errors[1]:.2f} |")
    print(f"{checked} operators and dtypes, {bad} differ, {time.time() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--ops", "sin", "--dtypes", "float32", "--count", "100"]
    sys.exit(main())
