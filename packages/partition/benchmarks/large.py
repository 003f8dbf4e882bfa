"""Seconds and memory of whole partitions of large joint graphs: ``python large.py [--markdown] [NODES ...]``.

The graphs are deep perceptrons with their backward, written node by node: tracing as many takes longer than cutting them.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "testing"))

import torch
from result_tables import Table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule

from fxstack_interchange import (
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Stage,
    StageGraph,
)
from fxstack_partition import partition

SIZES = (2_000, 20_000, 100_000)
PER_LAYER = 6
aten = torch.ops.aten


def perceptron(nodes: int) -> StageGraph:
    """A joint graph of about ``nodes`` nodes: layers ``sin(x @ w)`` and their gradients."""
    value = FakeTensorMode().from_tensor(torch.empty(64, 64))
    graph = Graph()

    def add(node):
        node.meta["val"] = value
        return node

    def call(target, *args):
        return add(graph.call_function(target, args))

    x, w, tangent = (add(graph.placeholder(name)) for name in ("x", "w", "tangent"))
    inputs, out = [], x
    for _ in range(nodes // PER_LAYER):
        product = call(aten.mm.default, out, w)
        inputs.append(product)
        out = call(aten.sin.default, product)
    grad = tangent
    for product in reversed(inputs):
        grad = call(aten.mul.Tensor, grad, call(aten.cos.default, product))
        grad = call(aten.mm.default, grad, call(aten.t.default, w))
    graph.output((out, grad))
    signature = GraphSignature(
        Stage.JOINT,
        (
            InputSpec(InputKind.USER_INPUT, "x", None),
            InputSpec(InputKind.PARAMETER, "w", "w"),
            InputSpec(InputKind.TANGENT, "tangent", out.name),
        ),
        (OutputSpec(OutputKind.USER_OUTPUT, out.name), OutputSpec(OutputKind.GRADIENT, grad.name, "x")),
        (),
    )
    return StageGraph(GraphModule({}, graph), signature)


def main(sizes: list[int]) -> None:
    table = Table("nodes", "save_all s", "min_cut s", "budget s", "peak MiB")
    for nodes in sizes or SIZES:
        joint = perceptron(nodes)
        cells = [str(nodes)]
        for name in ("save_all", "min_cut", "budget"):
            start = time.process_time()
            if name != "budget" or nodes <= SIZES[1]:
                partition(joint, name)
                cells.append(f"{time.process_time() - start:.2f}")
            else:
                cells.append("-")
        cells.append(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))
        table.row(*cells)


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["500"]
    main([int(a) for a in sys.argv[1:]])
