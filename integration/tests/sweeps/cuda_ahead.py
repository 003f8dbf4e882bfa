"""Compile every Triton kernel of models ahead of time, for GPUs that are not there, and tabulate the machine code.

    python integration/tests/sweeps/cuda_ahead.py [--models gpt2 ...] [--dtypes float32 bfloat16] [--capabilities 80 90 100]
    python integration/tests/sweeps/cuda_ahead.py --recorded FOLDER [--system fxstack]

Graphs are those that the pipeline gives inductor for one training and one inference step of the zoo's models, traced on CPU.
``--recorded`` takes the kernels of the steps that ``cuda_compare.py`` recorded in FOLDER in place of them. Equal kernels are
compiled once. Fails if a kernel does not compile or spills registers.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import cuda_record
import zoo

import fxstack
from fxstack import pipeline
from fxstack_inductor import InductorOptions
from fxstack_inductor.runtime import triton_runtime
from fxstack_inductor.runtime.cubins import request_entry
from fxstack_inductor.runtime.triton_worker import compile_kernel
from fxstack_inductor.targets.triton.lower import lower_triton

USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
ACCESS = re.compile(r"\b(ld|st)\.global[\w.:]*?(?:\.v(\d))?\.[bfsu](\d+)")
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass(frozen=True)
class Kernel:
    """A kernel: ``make(capability)`` compiles it. Kernels of one ``key`` are equal."""

    key: str
    text: str
    make: object


def graphs_of(name, dtype, size):
    """The graphs that inductor gets for one training and one inference step."""
    graphs = []
    original = pipeline.compile_graph

    def record(graph_module, *args, **kwargs):
        graphs.append(graph_module)
        return original(graph_module, *args, **kwargs)

    pipeline.compile_graph = record
    try:
        case = zoo.build(name, size)
        case.model.to(dtype)
        batch = {
            k: v.to(dtype) if torch.is_tensor(v) and v.is_floating_point() else v
            for k, v in case.batch.items()
        }
        options = {"optimization": 0}
        case.loss(fxstack.compile(case.model.train(), options=options), batch).backward()
        with torch.no_grad():
            fxstack.compile(case.model.eval(), options=options)(**batch)
    finally:
        pipeline.compile_graph = original
    return graphs


def traced(args, folder):
    """The kernels of each model and dtype of the zoo."""
    for model in args.models:
        for dtype in args.dtypes:
            kernels = []
            for graph in graphs_of(model, getattr(torch, dtype), args.size):
                source = lower_triton(graph, InductorOptions()).source
                module = triton_runtime.load_module(source.text, folder)
                for kernel in source.functions.values():
                    make = partial(compile_kernel, getattr(module, kernel.name), request_entry(kernel))
                    kernels.append(Kernel(kernel.text.replace(kernel.name, "k"), kernel.text, make))
            yield f"{model} | {dtype}", kernels


def recorded(args):
    """The kernels of each step that ``cuda_compare.py`` recorded."""
    for path in sorted(args.recorded.glob(f"*_{args.system}.json")):
        row = json.loads(path.read_text())
        steps = [row, *row.get("cases", {}).values()]
        keys = dict.fromkeys(
            launch["kernel"] for step in steps for launch in step.get("launches", ()) if "kernel" in launch
        )
        kernels = []
        for key in keys:
            text = args.recorded / "kernels" / f"{key}.ttir"
            kernels.append(Kernel(key, str(text), partial(compile_text, text)))
        yield f"{row['model']} {row['mode']} | {row['dtype']}", kernels


def compile_text(path, capability):
    """Compile a kernel from Triton's text of it, with the options that it was recorded with."""
    known = json.loads(path.with_suffix(".json").read_text())
    options = {name: known[name] for name in cuda_record.OPTIONS}
    return triton.compile(str(path), target=GPUTarget("cuda", capability, 32), options=options)


def facts(compiled, folder):
    path = folder / "kernel.cubin"
    path.write_bytes(compiled.asm["cubin"])
    printed = subprocess.run(
        [str(CUOBJDUMP), "-res-usage", str(path)], capture_output=True, text=True, check=True
    ).stdout
    registers, stack, _, local = map(int, USAGE.search(printed).groups())
    widths = Counter()
    for _, count, bits in ACCESS.findall(compiled.asm["ptx"]):
        widths[int(count or 1) * int(bits) // 8] += 1
    return {
        "registers": registers,
        "spilled": stack + local,
        "shared": compiled.metadata.shared,
        "widths": widths,
    }


def summary(found):
    widths = Counter()
    for fact in found:
        widths += fact["widths"]
    total = sum(widths.values()) or 1
    registers = sorted(f["registers"] for f in found) or [0]
    shown = ", ".join(f"{w} B {100 * n / total:.0f}%" for w, n in sorted(widths.items(), reverse=True))
    return (
        f"{len(found)} | {registers[len(registers) // 2]} | {registers[-1]} | "
        f"{sum(f['spilled'] > 0 for f in found)} | {max((f['shared'] for f in found), default=0)} | {shown}"
    )


@dataclass
class Totals:
    """The kernels that were compiled so far."""

    verbose: bool
    folder: Path
    done: dict = field(default_factory=dict)
    failures: int = 0

    def compile(self, kernel, capability):
        """Compile a kernel unless it was; its facts where it was not, None else."""
        if (kernel.key, capability) in self.done:
            return None
        start = time.perf_counter()
        try:
            found = facts(kernel.make(capability), self.folder)
        except Exception as error:
            self.failures += 1
            print(f"{type(error).__name__}: {error}\n{kernel.text}")
            return None
        found["seconds"] = time.perf_counter() - start
        self.done[kernel.key, capability] = found
        self.failures += found["spilled"] > 0
        if self.verbose or found["spilled"]:
            print(f"sm_{capability}: {found}\n{kernel.text}")
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="*", default=list(zoo.CASES))
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--capabilities", nargs="*", type=int, default=[80, 90, 100])
    parser.add_argument("--size", default=zoo.BENCH)
    parser.add_argument("--recorded", type=Path)
    parser.add_argument("--system", default="fxstack")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    start = time.time()
    print(
        "| model | dtype | target | kernels | median registers | most | spilling | shared bytes | accesses |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        os.environ["TRITON_CACHE_DIR"] = name  # seconds are those of compiling
        os.environ["FXSTACK_INDUCTOR_CACHE_DIR"] = name  # a step that is found on disk has no graph
        totals = Totals(args.verbose, Path(name))
        for label, kernels in recorded(args) if args.recorded else traced(args, totals.folder):
            totals.failures += not kernels
            for capability in args.capabilities:
                made = [totals.compile(kernel, capability) for kernel in kernels]
                print(f"| {label} | sm_{capability} | {summary([f for f in made if f])} |", flush=True)
    longest = sorted((f["seconds"] for f in totals.done.values()), reverse=True)[:5]
    print(
        f"\n{len(totals.done)} kernels, {totals.failures} failures, {time.time() - start:.0f} s, "
        f"the longest {', '.join(f'{s:.1f}' for s in longest)} s, Triton {triton.__version__}"
    )
    return 1 if totals.failures else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--models", "mlp", "--dtypes", "bfloat16", "--capabilities", "80", "--size", "tiny"]
    sys.exit(main())
