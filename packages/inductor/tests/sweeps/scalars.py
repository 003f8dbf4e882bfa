"""Every elementwise operator of torch's database on special numbers and over its whole range, against eager and a finer reference.

    python packages/inductor/tests/sweeps/scalars.py [--dtypes float32,float64] [--ops PATTERN] [--table]

Unary operators see zeros of both signs, infinities, NaN, denormal numbers, the extremes of the dtype, what lies around whole
and half numbers, and numbers of every exponent; binary operators all pairs of a selection of these. Integers and booleans have to be eager's;
floats as well where eager gives NaN, infinity or zero, and elsewhere within ``--ulp`` units in the last place of the
reference (float64 for narrower dtypes, eager for float64) or no further from it than eager is. ``--table`` prints the largest errors, ours and
eager's, as Markdown.
"""

import argparse
import itertools
import re
import sys
import time
import warnings

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
        return pairs(dtype)
    return (numbers(dtype, count),)


def ordered(x):
    """Integers one apart for neighbouring floats."""
    bits = x.view(INTEGERS[x.dtype]).long()
    low = torch.iinfo(INTEGERS[x.dtype]).min
    return torch.where(bits < 0, low - bits, bits)


def ulps(got, reference):
    """Distances in units of the last place of ``got``'s dtype."""
    info = torch.finfo(got.dtype)
    exponent = torch.frexp(reference.double()).exponent.clamp_min(-1021)
    spacing = torch.ldexp(torch.tensor(info.eps, dtype=torch.float64), exponent - 1)
    least = torch.tensor(info.smallest_normal * info.eps, dtype=torch.float64)
    error = (got.double() - reference.double()).abs() / spacing.clamp_min(least)
    return error.nan_to_num(0, 0, 0)


def zero_like(x):
    return (x == 0) & x.signbit(), (x == 0) & ~x.signbit(), x.isnan(), x == torch.inf, x == -torch.inf


def show(values, where, results):
    at = int(where.flatten().nonzero()[0])
    shown = ", ".join(repr(v.flatten()[at].item()) for v in values)
    return f"({shown}) -> {results[0].flatten()[at].item()!r}, not {results[1].flatten()[at].item()!r}"


def difference(got, want, exact, values, limit):
    """None or the first difference, and the errors of both."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{tuple(got.shape)}, not {want.dtype}{tuple(want.shape)}", (0, 0)
    if not got.is_floating_point():
        wrong = got != want
        return (f"{int(wrong.sum())} wrong: {show(values, wrong, (got, want))}" if wrong.any() else None), (0, 0)
    ours, theirs = ulps(got, exact), ulps(want, exact)
    largest = ours.max().item(), theirs.max().item()
    far = (ours > limit) & (ours > theirs * 1.01)
    kinds = torch.zeros_like(far)
    for a, b in zip(zero_like(got), zero_like(want)):
        kinds |= a != b
    # Where rounding decides: both within reach of the reference.
    kinds &= ~((ours <= 1) & (theirs <= 1) & (exact != 0) & exact.isfinite())
    for wrong in (kinds, far):
        if wrong.any():
            return f"{int(wrong.sum())} wrong: {show(values, wrong, (got, want))}", largest
    return None, largest


def widened(x):
    return x.double() if x.is_floating_point() else x


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
        return tuple(
            op.op(*[rest.pop(0) for _ in range(n)]) for (op, _, _), n in zip(batch, sizes)
        )

    compiled = fi.compile_graph(trace(together, flat), flat, args.options)
    found = []
    for (op, values, want), got in zip(batch, compiled(*flat)):
        try:
            exact = widened(op.op(*map(widened, values))) if want.is_floating_point() else want
        except RuntimeError:
            exact = want
        problem, errors = difference(got, want, exact, values, args.ulp)
        found.append((name_of(op), problem, errors))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtypes", default="float32,float64,bfloat16,float16,int64,int32,int16,int8,uint8,bool")
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
    sys.exit(main())
