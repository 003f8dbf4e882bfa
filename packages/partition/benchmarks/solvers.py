"""Seconds and memory of the minimum-cut solvers on random layered joint networks:
``python solvers.py [--markdown] [NODES ...]``.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "testing"))

from result_tables import Table

from fxstack_partition.mincut.network import SINK, SOURCE, Edge, Network
from fxstack_partition.mincut.solve import SOLVERS

SIZES = (2_000, 10_000, 30_000, 100_000)


def layered(nodes: int, seed: int = 0) -> Network:
    """A network as a joint graph of ``nodes`` forward nodes gives: mostly chains, some heavy nodes, half read again."""
    draw = random.Random(seed)
    names, leaves = ["source", "sink"], []
    edges: dict[tuple[int, int], int | None] = {}
    for index in range(nodes):
        size = draw.choice([4, 256, 4096, 1 << 16, 1 << 20, 1 << 24]) * draw.choice([1, 2, 3]) * 16
        kept = index < 5 or draw.random() < 0.15
        names += [] if kept else [f"n{index}:in"]
        entry = SOURCE if kept else len(names) - 1
        names.append(f"n{index}:out")
        leave = len(names) - 1
        edges[entry, leave] = size + 1
        for _ in range(0 if kept else draw.choice([1, 1, 1, 2, 2, 3])):
            near = draw.random() < 0.98
            before = index - 1 - int(draw.expovariate(0.1)) if near else draw.randrange(index)
            edges[leaves[max(0, before)], entry] = None
        leaves.append(leave)
        if draw.random() < 0.5:
            edges[leave, SINK] = None
    made = tuple(Edge(*ends, capacity) for ends, capacity in edges.items())
    return Network(tuple(names), made, {}, {})


def main(sizes: list[int]) -> None:
    table = Table("nodes", "edges", "scipy s", "networkx s", "peak MiB")
    for nodes in sizes or SIZES:
        network = layered(nodes)
        seconds = {}
        for name in ("scipy", "networkx"):
            if name == "networkx" and nodes > SIZES[2]:
                continue
            start = time.perf_counter()
            SOLVERS[name](network)
            seconds[name] = f"{time.perf_counter() - start:.3f}"
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        table.row(nodes, len(network.edges), seconds["scipy"], seconds.get("networkx", "-"), peak)


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = ["200"]
    main([int(a) for a in sys.argv[1:]])
