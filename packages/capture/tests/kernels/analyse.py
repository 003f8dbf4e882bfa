"""Analyses all kernels of ``user_kernels`` without running them; prints what each writes to as JSON."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
import triton
from user_kernels import WRITES

from fxstack_capture import optimize
from fxstack_capture.kernels import triton_side
from fxstack_capture.kernels.records import descriptor_maker
from fxstack_interchange.operators.kernels import KernelArgument


@triton.jit
def between_descriptors(source, target, n):
    target.store([0], source.load([0]) + n)


def analysed(kernel):
    tensors = {name: torch.randn(48) for name in ("x", "y", "out")}
    kinds = {name: KernelArgument(name, "tensor") for name in tensors}
    kinds["n"] = KernelArgument("n", "integer")
    values = {**tensors, "n": 48, "BLOCK": 16, "by": 2.5}
    return sorted(triton_side.written_parameters(kernel, values, kinds))


def host_side():
    maker = descriptor_maker((16,), "zero")
    kinds = {name: KernelArgument(name, "descriptor", maker) for name in ("source", "target")}
    values = {name: maker(torch.randn(48), [48], [1]) for name in kinds}
    kinds["n"] = KernelArgument("n", "integer")
    return sorted(triton_side.written_parameters(between_descriptors, {**values, "n": 1}, kinds))


def schema():
    """Of the operator that a launch becomes in a graph; nothing can be launched here."""
    found = []

    def backend(graph, _inputs):
        found.extend(str(node.target._schema) for node in graph.graph.nodes if "triton" in str(node.target))
        return lambda x, y: (x,)

    def program(x, y):
        out = torch.empty_like(x)
        WRITES["add"][0][lambda meta: (triton.cdiv(48, meta["BLOCK"]),)](x, y, out, 48, BLOCK=16)
        return out

    optimize(backend)(program)(torch.randn(48), torch.randn(48))
    return found[0][found[0].index("(") :]


result = {name: analysed(kernel) for name, (kernel, _) in WRITES.items()}
print(json.dumps({**result, "host_side": host_side(), "schema": schema()}))
