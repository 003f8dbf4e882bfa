"""Compile attention kernels ahead of time for GPUs that are not there, and tabulate the machine code.

    python packages/inductor/tests/sweeps/attention_ahead.py [--capabilities 80 90] [--dtypes bfloat16 float32]
        [--markdown]

Forward, gradients, and a forward with few queries, for rows of 32 to 256 elements: a causal block mask and a bias. Fails if a
kernel does not compile.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
sys.path.insert(0, str(Path(__file__).parents[4] / "testing"))

import torch
from machine_code import registers_and_spilled
from result_tables import Table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions
from fxstack_inductor.runtime import triton_runtime
from fxstack_inductor.runtime.cubins import request_entry
from fxstack_inductor.runtime.triton_worker import compile_kernel
from fxstack_inductor.targets.triton.lower import lower_triton
from fxstack_interchange.operators.attention import Operand, trace_attention
from fxstack_interchange.operators.attention_operators import attention_operator

MOST_SHARED = {80: 163, 86: 99, 89: 99, 90: 227}
"""KiB that a block may have."""
BLOCK = 128


def graph_of(dtype, depth, queries, keys, *, train):
    """A graph of one attention with a causal mask and a bias for each head, and of its backward."""
    slopes = Operand(1, torch.float32, gradient=False)
    attention = trace_attention(
        lambda s, b, h, m, n, slope: s + torch.ops.aten.index(slope, [h]) * (m - n),
        lambda b, h, m, n: m + (keys - queries) >= n,
        operand_positions=([0], []), buffers=[slopes], numbers=0, device=torch.device("cpu"),
        scale=depth**-0.5, blocks=(BLOCK, BLOCK), gradients=train,
    )  # fmt: skip
    operator = attention_operator(attention)

    def run(query, key, value, slope, *tables):
        rest = (list(tables), [slope], [])
        out, sums, _ = operator(query, key, value, *rest)
        if not train:
            return out, sums
        backward = operator._overloadpacket.backward
        return out, *backward(query, key, value, *rest, out, sums, out, [])

    down, across = -(-queries // BLOCK), -(-keys // BLOCK)
    shapes = [(1, 1, down), (1, 1, down, across), (1, 1, across), (1, 1, across, down)]
    with FakeTensorMode():
        query = torch.empty(4, 16, queries, depth, dtype=dtype)
        pair = [torch.empty(4, 4, keys, depth, dtype=dtype) for _ in range(2)]
        tables = [
            torch.empty(s, dtype=torch.int32) for s in (*shapes[:2], *shapes[:2], *shapes[2:], *shapes[2:])
        ]
        return make_fx(run)(query, *pair, torch.empty(16), *tables)


def facts(compiled):
    matrix = sorted(set(re.findall(r"wgmma|mma(?=\.sync)", compiled.asm["ptx"])))
    return *registers_and_spilled(compiled), compiled.metadata.shared, "+".join(matrix) or "fma"


def rows(args, folder):
    for dtype in args.dtypes:
        for depth in args.depths:
            for name, queries, train in (("training", 2048, True), ("decoding", 1, False)):
                graph = graph_of(getattr(torch, dtype), depth, queries, 2048, train=train)
                source = lower_triton(graph, InductorOptions()).source
                module = triton_runtime.load_module(source.text, folder)
                for kernel in {k.name: k for k in source.functions.values()}.values():
                    if kernel.kernel.roles is None:
                        continue
                    for capability in args.capabilities:
                        made = compile_kernel(getattr(module, kernel.name), request_entry(kernel), capability)
                        found = facts(made)
                        c = kernel.config
                        sizes = f"{c.bm}x{c.bn}, {c.num_warps} warps, {c.num_stages} stages"
                        what = f"{name}: {kernel.kernel.roles.kind}"
                        yield dtype, depth, what, capability, sizes, found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--capabilities", nargs="*", type=int, default=[80, 90])
    parser.add_argument("--dtypes", nargs="*", default=["bfloat16", "float32"])
    parser.add_argument("--depths", nargs="*", type=int, default=[32, 64, 128, 256])
    args = parser.parse_args()
    columns = "row", "kernel", "sm", "tile", "registers", "spilled", "shared", "instructions"
    table = Table("dtype", *columns, packages=["triton"])
    spilling = large = 0
    with tempfile.TemporaryDirectory() as folder:
        for dtype, depth, what, sm, sizes, found in rows(args, Path(folder)):
            registers, spilled, shared, matrix = found
            spilling += spilled > 0
            large += shared > MOST_SHARED[sm] << 10
            table.row(dtype, depth, what, sm, sizes, registers, spilled, f"{shared >> 10} KiB", matrix)
    print(f"\n{spilling} kernels spill, {large} need too much shared memory")
    sys.exit(large > 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["--capabilities", "80", "--dtypes", "bfloat16", "--depths", "32"]
    main()
