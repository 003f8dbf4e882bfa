"""Compile every Triton kernel of the zoo's models ahead of time, for GPUs that are not there, and tabulate the machine code.

    python integration/tests/sweeps/cuda_ahead.py [--models gpt2 ...] [--dtypes float32 bfloat16] [--capabilities 80 90]

Graphs are those that the pipeline gives inductor for one training and one inference step, traced on CPU. Equal kernels are
compiled once. Fails if a kernel does not compile or spills registers.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
import triton

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="*", default=list(zoo.CASES))
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--capabilities", nargs="*", type=int, default=[80, 90])
    parser.add_argument("--size", default=zoo.BENCH)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    start, failures, done = time.time(), 0, {}
    print(
        "| model | dtype | target | kernels | median registers | most | spilling | shared bytes | accesses |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in args.models:
            for dtype in args.dtypes:
                graphs = graphs_of(model, getattr(torch, dtype), args.size)
                sources = [lower_triton(g, InductorOptions()).source for g in graphs]
                for capability in args.capabilities:
                    found = []
                    for source in sources:
                        module = triton_runtime.load_module(source.text, folder)
                        for kernel in source.functions.values():
                            key = (kernel.text.replace(kernel.name, "k"), capability)
                            if key in done:
                                continue
                            try:
                                compiled = compile_kernel(
                                    getattr(module, kernel.name), request_entry(kernel), capability
                                )
                                done[key] = facts(compiled, folder)
                                found.append(done[key])
                            except Exception as error:
                                failures += 1
                                print(f"{model} {dtype}: {type(error).__name__}: {error}\n{kernel.text}")
                                continue
                            if args.verbose or done[key]["spilled"]:
                                failures += done[key]["spilled"] > 0
                                print(f"{done[key]}\n{kernel.text}")
                    print(f"| {model} | {dtype} | sm_{capability} | {summary(found)} |", flush=True)
    print(
        f"\n{len(done)} kernels, {failures} failures, {time.time() - start:.0f} s, Triton {triton.__version__}"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--models", "mlp", "--dtypes", "bfloat16", "--capabilities", "80", "--size", "tiny"]
    sys.exit(main())
