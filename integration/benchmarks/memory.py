"""Simulated and measured peak memory of compiled training steps: ``python memory.py [--markdown] [MODEL ...]``.

The prediction is ``fxstack_partition.ordering.simulate`` of the partition that the compiled model runs; the measurement is the
running sum of the CPU allocator's events over one step, as torch's profiler records them. Backend ``operators`` runs
the partitioned graphs operator by operator, which is what is simulated; ``inductor`` fuses and reuses buffers, and
its caller holds the backward's arguments.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))

import peaks
import torch
import zoo
from result_tables import Table

import fxstack
from fxstack.memory import compiled_memory
from fxstack_functionalize import aot
from fxstack_inductor import decompositions
from fxstack_inductor.runtime.arena import shared_pool
from fxstack_partition import Measured, PartitionOptions, partition, simulate

MEASURED = Measured()


class Boxed(torch.fx.Interpreter):
    """Runs a graph operator by operator and drops each value, arguments included, after its last use."""

    boxed = True

    def __call__(self, arguments):
        values = list(arguments)
        arguments.clear()
        nodes = list(self.module.graph.nodes)
        placeholders = [n for n in nodes if n.op == "placeholder"]
        self.env = {n: v for n, v in zip(placeholders, values, strict=True) if n.users}
        values.clear()
        for node in nodes[len(placeholders) :]:
            result = self.run_node(node)
            if node.op == "output":
                self.env = {}
                return result
            self.env[node] = result
            del result
            for dead in self.user_to_last_uses.get(node, ()):
                self.env.pop(dead, None)
            if not node.users:
                self.env.pop(node)
        raise AssertionError


def operators(partitioner):
    """A backend that runs the partitioned graphs with ``Boxed``."""

    def backend(graph, inputs):
        table = decompositions()

        def build(module, _inputs):
            return Boxed(module)

        return aot(graph, inputs, fw_compiler=build, partitioner=partitioner, decompositions=table)

    return backend


def compare(name: str, partitioner: str, backend: str) -> tuple[int, int]:
    """Simulated and measured peak of one step of one model."""
    shared_pool().free.clear()
    case = zoo.build(name, zoo.BENCH)
    case.model.train()
    parts = []

    def keep(joint, options=PartitionOptions()):  # noqa: B008 - frozen
        parts.append(partition(joint, partitioner, options))
        return parts[-1]

    if backend == "operators":
        compiled = fxstack.compile(case.model, backend=operators(keep))
    else:
        compiled = fxstack.compile(case.model, options={"partitioner": keep})

    def step() -> None:
        output = compiled(**case.batch)
        loss = output.square().mean() if isinstance(output, torch.Tensor) else output.loss
        loss.backward()

    for _ in range(2):
        step()
        case.model.zero_grad(set_to_none=True)
    found = peaks.allocated_peak(step)
    runtime = None if backend == "operators" else compiled_memory
    options = PartitionOptions(runtime=runtime, scratch=MEASURED.scratch)
    return sum(simulate(part, options).peak for part in parts), found


def main(names: list[str]) -> None:
    table = Table("model", "partitioner", "backend", "simulated MB", "measured MB", "measured / simulated")
    for backend in ("operators", "inductor"):
        run = partial(compare, backend=backend)
        for name in names or zoo.CASES:
            for partitioner in ("min_cut",):
                predicted, found = run(name, partitioner)
                ratio = found / predicted
                sizes = f"{predicted / 1e6:.2f}", f"{found / 1e6:.2f}"
                table.row(name, partitioner, backend, *sizes, f"{ratio:.3f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["mlp"]
    main(sys.argv[1:])
