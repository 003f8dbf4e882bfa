"""Every function that ``numpy_side.functions`` pairs with NumPy's, on real arrays: where do the values differ?

    python packages/capture/tests/sweeps/numpy_functions.py

Class, dtype and shape are compared while tracing; this compares elements, NaN, infinity and negative zero among them.
"""

import collections
import copy
import itertools
import sys
import warnings
from functools import partial

import numpy as np
import torch
import torch._numpy as tnp

from fxstack_capture.numpy_side.functions import pairs
from fxstack_capture.torch_side.arrays.dry_run import name_of

DTYPES = ("bool", "uint8", "int32", "int64", "float16", "float32", "float64", "complex64")
TOLERANCE = {np.dtype("float16"): 2e-2, np.dtype("float32"): 1e-4, np.dtype("complex64"): 1e-4}
RANDOM = np.random.default_rng(0)


def elements(dtype, *shape):
    kind = np.dtype(dtype).kind
    if kind in "biu":
        return RANDOM.integers(0 if kind in "bu" else -4, 5, shape).astype(dtype)
    found = RANDOM.standard_normal(shape) * 2 + (1j if kind == "c" else 0)
    if kind == "f" and found.size > 3:
        found.reshape(-1)[:3] = np.nan, np.inf, -0.0
    return found.astype(dtype)


def arguments(dtype):
    """Argument lists that many functions take."""
    a = lambda *shape: elements(dtype, *shape)
    yield from ((a(4),), (a(3, 3),), (a(2, 3),), (a(),), ([a(3), a(3)],), (a(4), a(4)))
    yield from ((a(3, 3), a(3, 3)), (a(2, 3), a(3, 2)), (a(3, 3), a(3)), (a(4), 2), (a(4), 0.5))
    yield from ((a(3, 3), 0), (a(3, 3), 0, 1), (a(2, 3), -1), (a(4), (2, 2)), (a(5), a(), a()))
    yield from ((a(4) > 0, a(4), a(4)), (a(5), np.array([0, 2, 1])), (np.sort(a(5)), a(3)))
    yield from (("ij,jk->ik", a(2, 3), a(3, 2)), (a(3, 3), 50))


def inner(value):
    if isinstance(value, np.ndarray):
        return tnp.ndarray(torch.from_numpy(value.copy()))
    return [inner(item) for item in value] if isinstance(value, list) else value


def leaves(value):
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value.tensor.numpy(force=True) if isinstance(value, tnp.ndarray) else value


def outcome(pair, args):
    """What the two functions give on the same arguments: "same", "differs" or "not compared"."""
    try:
        wanted = pair.theirs(*copy.deepcopy(args))
        found = pair.ours(*map(inner, args))
    except Exception:  # one of them does not take these
        return "not compared"
    inputs = [arg.dtype for arg in args if isinstance(arg, np.ndarray)]
    for theirs, ours in zip(leaves(wanted), leaves(found), strict=False):
        theirs, ours = np.asarray(theirs), np.asarray(ours)
        if theirs.dtype == object or theirs.dtype != ours.dtype or theirs.shape != ours.shape:
            return "not compared"
        limit = max((TOLERANCE.get(dtype, 1e-8) for dtype in (*inputs, theirs.dtype)), default=0)
        if not np.allclose(theirs, ours, rtol=limit, atol=limit, equal_nan=theirs.dtype.kind in "fc"):
            return "differs"
    return "same"


def calls():
    """(pair, arguments) of everything that is compared."""
    for pair, dtype in itertools.product(pairs().values(), DTYPES):
        for args in arguments(dtype):
            kinds = [np.asarray(arg).dtype.kind for arg in args[:2]]
            second = args[1] if len(args) > 1 else None
            method = hasattr(pair.theirs, "__objclass__")
            agree = pair.holds is None or pair.holds(second, kinds)
            if agree and (isinstance(args[0], np.ndarray) or not method):
                yield pair, args


def main():
    counts, different = collections.Counter(), collections.Counter()
    for pair, args in calls():
        if "empty" not in name_of(pair.theirs):
            result = outcome(pair, args)
            counts[result] += 1
            different[name_of(pair.theirs)] += result == "differs"
    print(
        f"{len(pairs())} functions, {counts['same']} calls with NumPy's values, {counts['differs']} with others"
    )
    for name, count in sorted(different.items()):
        if count:
            print(f"  {name}: {count}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = []
        calls = partial(itertools.islice, calls(), 40)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    main()
