"""Sweep torch's operator database through the Triton kernels: on a GPU, or on CPU in Triton's interpreter.

    python packages/inductor/tests/sweeps/opdb_device.py [--dtypes float32,int64] [--ops PATTERN]

A sample is counted when at least one kernel is generated for it; the others only show that ATen is called.
Prints one line per operator and dtype that differs or fails, and totals. ``--part 3/8`` takes an eighth of the operators, in an
order that mixes all kinds; ``--log FILE`` gets a line of JSON for each before and after it ran; ``--skip N`` leaves N out.
``--backwards`` finds what a GPU computes in no order: small tiles, run last to first, in memory that is not zero.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
from opdb import one
from torch.testing._internal.common_methods_invocations import op_db

import fxstack_inductor as fi

DTYPES = ["float32", "bfloat16", "float16", "int64", "bool"]
LOST = 3
"""The status of a process whose device answers no more."""
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


def cases(dtypes: list[str], names: str | None = None, part: str = "") -> list[tuple]:
    """Operators with a dtype each; those of a part in an order that mixes all kinds."""
    named = [(op.name + (f".{op.variant_test_name}" * bool(op.variant_test_name)), op) for op in op_db]
    found = [
        (name, op, dtype)
        for name, op in named
        if names is None or re.fullmatch(names, name)
        for dtype in dtypes
    ]
    if not part:
        return found
    random.Random(0).shuffle(found)
    own, parts = map(int, part.split("/"))
    return found[own::parts]


def sweep(device: str, chosen: list[tuple], count: int = 6, grad: bool = False) -> Iterator[Result | None]:
    """A result for each case, with running totals; None for those without samples."""
    options = fi.InductorOptions(target="cuda", use_cache=device != "cpu")
    threads = [torch.get_num_threads()]
    settings = SimpleNamespace(grad=grad, symbolic=False, traceback=False, options=options, threads=threads)
    seen = wrong = 0
    for name, op, text in chosen:
        dtype = getattr(torch, text)
        samples = []
        if op.supports_dtype(dtype, device) and (op.supports_autograd or not grad):
            torch.manual_seed(1)
            with contextlib.suppress(Exception):
                samples = list(itertools.islice(op.sample_inputs(device, dtype), count))
        samples = small(samples, device)
        result = one(op, samples, settings) if samples else "skip"
        if result == "skip":
            yield None
            continue
        seen += len(samples)
        if result is not None:
            results = [one(op, [s], settings) for s in samples]
            bad = [r for r in results if r not in (None, "skip")]
            wrong += len(bad)
            result = f"[{len(bad)}/{len(samples)}] {bad[0]}" if bad else None
        yield Result(name, text, result, seen, wrong)


def write(path: Path | None, **line: object) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def backwards() -> None:
    """Have the interpreter run a grid's programs last to first, on small tiles, and results lie in memory full of NaN or 0x55."""
    from triton.runtime.interpreter import InterpreterBuilder

    from fxstack_inductor.codegen.host import python_host as wrapper
    from fxstack_inductor.tiling import tiles as triton_tiles

    place = InterpreterBuilder.set_grid_idx

    def last_to_first(self: object, x: int, y: int, z: int) -> None:
        place(self, self.grid_dim[0] - 1 - x, y, z)

    def dirty(*args: object, **kwargs: object) -> torch.Tensor:
        made = torch.empty_strided(*args, **kwargs)
        bits = torch.empty(0, dtype=torch.uint8).set_(made.untyped_storage())
        bits.fill_(0xFF if made.is_floating_point() else made.dtype is torch.bool or 0x55)
        return made

    InterpreterBuilder.set_grid_idx = last_to_first
    wrapper.HELPERS = {**wrapper.HELPERS, "empty_strided": dirty}
    triton_tiles.POINTS, triton_tiles.TILE = 16, 64


def lost(device: str) -> bool:
    """Whether the device has met an error that no later call survives."""
    try:
        if device != "cpu":
            torch.cuda.synchronize()
    except RuntimeError as error:
        print(error, flush=True)
        return True
    return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--ops", default=None)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", default="")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--backwards", action="store_true")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    args = parser.parse_args()
    if args.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        # Triton reads it when it is imported, and torch has imported it.
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    if args.backwards:
        backwards()
    start, last = time.time(), None
    chosen = cases(args.dtypes.split(","), args.ops, args.part)[args.skip :]
    results = sweep(args.device, chosen, args.samples, args.grad)
    for position, (name, _, dtype) in enumerate(chosen, args.skip):
        if time.time() - start > args.seconds:
            write(args.log, stopped=position)
            break
        write(args.log, position=position, case=f"{name} {dtype}")
        result = next(results)
        write(args.log, position=position, result=result and asdict(result))
        last = result or last
        if result and result.problem:
            print(f"{result.name} {result.dtype}: {result.problem}", flush=True)
            if lost(args.device):
                os._exit(LOST)  # what Python does at its end would wait for the device
    else:
        write(args.log, done=True)
    if last is not None:
        print(f"{last.seen} samples, {last.wrong} wrong, {time.time() - start:.0f} s")
    return 1 if last is None or last.wrong else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--ops", "add", "--dtypes", "float32", "--samples", "1"]
    sys.exit(main())
