"""Sweep torch's operator database through the Triton kernels: on a GPU, or on CPU in Triton's interpreter.

    python packages/inductor/tests/sweeps/opdb_device.py [--dtypes float32,int64] [--ops PATTERN]

A sample is counted when at least one kernel is generated for it; the others only show that ATen is called.
Prints one line per operator and dtype that differs or fails, and totals.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from opdb import one
from torch.testing._internal.common_methods_invocations import op_db

import fxstack_inductor as fi

DTYPES = ["float32", "bfloat16", "float16", "int64", "bool"]
TOO_LARGE = 30_000
"""Elements in one sample above which the interpreter takes minutes."""


@dataclass
class Result:
    """One operator and dtype, and the running totals of samples."""

    name: str
    dtype: str
    problem: str | None
    seen: int
    wrong: int


def small(samples: list, device: str) -> list:
    if device != "cpu":
        return samples
    leaves = torch.utils._pytree.tree_leaves

    def elements(sample: object) -> int:
        tensors = leaves((sample.input, sample.args, sample.kwargs))
        return sum(t.numel() for t in tensors if isinstance(t, torch.Tensor))

    return [s for s in samples if elements(s) <= TOO_LARGE]


def sweep(
    device: str, dtypes: list[str], names: str | None = None, count: int = 6, grad: bool = False
) -> Iterator[Result]:
    """Results as they come; on a GPU operators alternate so that a sweep that is cut short has seen all kinds."""
    options = fi.InductorOptions(target="cuda", use_cache=device != "cpu")
    settings = SimpleNamespace(grad=grad, symbolic=False, traceback=False, options=options)
    seen = wrong = 0
    for op in op_db:
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if names is not None and not re.fullmatch(names, name):
            continue
        for text in dtypes:
            dtype = getattr(torch, text)
            if not op.supports_dtype(dtype, device) or (grad and not op.supports_autograd):
                continue
            torch.manual_seed(1)
            try:
                samples = [s for s, _ in zip(op.sample_inputs(device, dtype), range(count))]
            except Exception:
                continue
            samples = small(samples, device)
            result = one(op, samples, settings) if samples else "skip"
            if result == "skip":
                continue
            seen += len(samples)
            if result is not None:
                results = [one(op, [s], settings) for s in samples]
                bad = [r for r in results if r not in (None, "skip")]
                wrong += len(bad)
                result = f"[{len(bad)}/{len(samples)}] {bad[0]}" if bad else None
            yield Result(name, text, result, seen, wrong)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--ops", default=None)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        # Triton reads it when it is imported, and torch has imported it.
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    start, result = time.time(), None
    for result in sweep(args.device, args.dtypes.split(","), args.ops, args.samples, args.grad):
        if result.problem:
            print(f"{result.name} {result.dtype}: {result.problem}", flush=True)
    if result is not None:
        print(f"{result.seen} samples, {result.wrong} wrong, {time.time() - start:.0f} s")
    return 1 if result is None or result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
