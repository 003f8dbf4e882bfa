"""What a joint trace costs: beside torch's AOT stage with the same decompositions, and against the graph's size.

    python packages/functionalize/tests/sweeps/tracing.py [--markdown] [nodes ...]

Processor seconds, the best of three. torch's figure includes its default partition.
"""

import logging
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[4] / "testing"))

import torch
from compare import as_graph
from helpers import run_graph
from result_tables import Table
from torch._decomp import core_aten_decompositions
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import default_partition

from fxstack_functionalize import trace_joint


def chain(length):
    """A captured graph of ``length`` pointwise operators on one parameter."""
    graph = torch.fx.Graph()
    value = weight = graph.placeholder("weight")
    for number in range(length):
        function = (torch.sin, torch.mul, torch.tanh, torch.add)[number % 4]
        value = graph.call_function(function, (value, weight) if number % 2 else (value,))
    graph.output((value,))
    return torch.fx.GraphModule(torch.nn.Module(), graph), [torch.randn(4, requires_grad=True)]


def layers(count, width=32, heads=4):
    """Transformer layers as one captured graph, their parameters its inputs."""

    def run(x, *weights):
        for first in range(0, len(weights), 4):
            into, out, up, down = weights[first : first + 4]
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (x @ into).chunk(3, -1))
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = torch.nn.functional.layer_norm(x + mixed.transpose(1, 2).flatten(2) @ out, (width,))
            x = torch.nn.functional.layer_norm(x + torch.nn.functional.gelu(x @ up) @ down, (width,))
        return (x.pow(2).mean(),)

    shapes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)] * count
    inputs = [torch.randn(2, 8, width), *(torch.randn(s, requires_grad=True) for s in shapes)]
    return as_graph(run, len(inputs)), inputs


LAYERS = (1, 4, 12)


def cost(function):
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def compare(table, name, graph, inputs):
    decompositions = core_aten_decompositions()
    ours = cost(lambda: trace_joint(graph, inputs, decompositions=decompositions))
    theirs = cost(
        lambda: aot_module_simplified(
            graph,
            inputs,
            fw_compiler=run_graph,
            bw_compiler=run_graph,
            partition_fn=default_partition,
            decompositions=decompositions,
        )
    )
    table.row(name, f"{ours:.3f}", f"{theirs:.3f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:], LAYERS = ["50"], (1,)
    warnings.simplefilter("ignore")
    logging.disable()
    table = Table("graph", "fxstack s", "torch's AOT stage s")
    for count in LAYERS:
        compare(table, f"{count} transformer layers", *layers(count))
    print()
    table = Table("operators in a chain", "s", "us an operator")
    for length in [int(word) for word in sys.argv[1:]] or (1250, 5000, 20000):
        graph, inputs = chain(length)
        seconds = cost(lambda graph=graph, inputs=inputs: trace_joint(graph, inputs))
        table.row(f"{length:,}", f"{seconds:.2f}", f"{seconds / length * 1e6:.0f}")
