"""The fixed part of a script: generated inputs, compilation, comparison and timing.

The text of this file is part of every script, so it uses torch and the standard library only.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import operator
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float32: 2e-5, torch.float64: 1e-9}
"""Allowed difference relative to the largest element, by dtype; other dtypes must be equal."""
CONSTANTS = (inf, nan, math, operator, partial)
"""Names that the generated part of a script may use."""


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of memory elements that a tensor spans."""
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))


def make_exact(
    values: Sequence[Any], shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """Return a tensor with these memory elements, under the given sizes and strides."""
    return torch.tensor(values, dtype=dtype).as_strided(shape, stride)


def make_random(
    shape: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype,
    *,
    low: float,
    high: float,
    mean: float = 0.0,
    std: float = 1.0,
    ordered: bool = False,
) -> torch.Tensor:
    """Return a tensor of random elements: integers in a range, booleans with mean ``mean``, clamped normal floats."""
    count, last = extent(shape, stride), 2**63 - 2
    if dtype is torch.bool:
        flat = torch.rand(count) < mean
    elif dtype.is_complex:
        flat = torch.randn(count, dtype=torch.complex128) * std + mean
    elif dtype.is_floating_point:
        flat = torch.randn(count, dtype=torch.float64).mul(std).add(mean).clamp(low, high)
    else:
        flat = torch.randint(min(int(low), last), min(int(high), last) + 1, (count,))
    return (flat.sort()[0] if ordered else flat).to(dtype).as_strided(shape, stride)


def make_attributes(values: Mapping[str, Any]) -> SimpleNamespace:
    """Return an object with these attributes; a dot in a name makes a nested object."""
    root = SimpleNamespace()
    for name, value in values.items():
        *path, last = name.split(".")
        owner = root
        for part in path:
            if not hasattr(owner, part):
                setattr(owner, part, SimpleNamespace())
            owner = getattr(owner, part)
        setattr(owner, last, value)
    return root


def compile_source(source: str, flags: Sequence[str], libraries: Sequence[str]) -> ctypes.CDLL:
    """Compile C source and return the loaded library, linked with the OpenMP runtime that torch has loaded."""
    names = ("gcc", "cc", "clang")
    compiler = os.environ.get("FXSTACK_CC") or next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        sys.exit("no C compiler found: install gcc or clang, or name one in FXSTACK_CC")
    found = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    openmp = [str(path) for path in found[:1]] or ["-fopenmp"]
    with tempfile.TemporaryDirectory() as name:
        text, binary = Path(name) / "kernels.c", Path(name) / "kernels.so"
        text.write_text(source)
        command = [compiler, *flags, str(text), "-o", str(binary), "-Wl,--as-needed"]
        done = subprocess.run([*command, *openmp, *libraries], check=False)  # noqa: S603
        if done.returncode:
            sys.exit(f"compile: FAILED with status {done.returncode}")
        return ctypes.CDLL(str(binary))


def kernel(library: ctypes.CDLL, name: str, arguments: int) -> Any:
    """Return a kernel function, which takes pointers and 64-bit integers."""
    function = library[name]
    function.argtypes = [ctypes.c_int64] * arguments
    function.restype = None
    return function


def copy_of(value: object) -> Any:
    """Return the same elements in other memory, with the same strides."""
    if not isinstance(value, torch.Tensor):
        return value
    memory = value.as_strided((extent(value.shape, value.stride()),), (1,)).clone()
    return memory.as_strided(value.shape, value.stride())


def tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def results_of(value: object) -> Sequence[Any]:
    """Return a graph's results as a sequence; a single tensor is one result."""
    return value if isinstance(value, (tuple, list)) else (value,)


def difference(actual: Any, expected: Any) -> float:
    """Return the largest difference of two results, relative to the largest element.

    Raises:
        AssertionError: the results differ by more than rounding.
    """
    if not isinstance(expected, torch.Tensor):
        assert actual == expected, f"{actual!r} instead of {expected!r}"
        return 0.0
    tolerance = TOLERANCE.get(expected.dtype, 0.0)
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        return 0.0
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    sizes = expected.to(wide).abs()
    sizes = sizes[sizes.isfinite()]
    scale = max(1.0, sizes.max().item()) if sizes.numel() else 1.0
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    apart = (actual.to(wide) - expected.to(wide)).abs()
    apart = apart[apart.isfinite()]
    return apart.max().item() / scale if apart.numel() else 0.0


def check(call: Callable[..., Any], reference: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Run both functions on copies from the same random state, compare results and inputs, and print the outcome."""
    mine, theirs = [copy_of(x) for x in inputs], [copy_of(x) for x in inputs]
    torch.manual_seed(0)
    expected = [*results_of(reference(*theirs)), *theirs]
    torch.manual_seed(0)
    actual = [*call(*mine), *mine]
    results, largest = len(expected) - len(inputs), 0.0
    for position, (value, want) in enumerate(zip(actual, expected, strict=True)):
        label = f"output {position}" if position < results else f"input {position - results}"
        try:
            largest = max(largest, difference(value, want))
        except AssertionError as error:
            print(f"check: FAILED, {label} differs from the ATen graph in eager torch: {error}")  # noqa: T201
            return False
    print(f"check: ok, {results} outputs, largest difference {largest:.1e}")  # noqa: T201
    return True


def measure(name: str, call: Callable[..., Any], inputs: Sequence[Any], repeats: int) -> None:
    """Print the median time of a call, and the resulting rate of input and output bytes."""
    copies = [copy_of(x) for x in inputs]
    for _ in range(3):
        results = results_of(call(*copies))
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call(*copies)
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    moved = sum(x.numel() * x.element_size() for x in tensors([*copies, *results]))
    rate = f"{moved / median / 1e9:.2f} GB/s of inputs and outputs ({moved} bytes)"
    print(f"time: {name}: median of {repeats}: {median * 1e6:.1f} us, {rate}")  # noqa: T201


def main(call: Callable[..., Any], reference: Callable[..., Any] | str, inputs: Sequence[Any]) -> None:
    """Check, measure, and exit with 1 for wrong results.

    ``reference``: the function to compare with, or a text that says why there is none.
    """
    parser = argparse.ArgumentParser(description="Run compiled kernels, check and time them.")
    parser.add_argument("--repeats", type=int, default=100, help="timed calls, at least 1")
    repeats = max(1, parser.parse_args().repeats)
    with torch.no_grad():
        if isinstance(reference, str):
            print(f"check: skipped, {reference}")  # noqa: T201
        elif not check(call, reference, inputs):
            sys.exit(1)
        measure("compiled", call, inputs, repeats)
        if not isinstance(reference, str):
            measure("eager", reference, inputs, repeats)
