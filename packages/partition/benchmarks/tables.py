"""Every table of docs/results/training-memory.md, in its order, as Markdown.

    python packages/partition/benchmarks/tables.py [GRAPH ...]

Takes about half an hour on an idle machine, most of it in torch's budget solver; with names of graphs, only those of the corpus
are compared. Each table is followed by the processor time that it took.
"""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from pathlib import Path

import networkx as nx
import scipy
import torch

HERE = Path(__file__).parent
MEMORY = HERE.parents[2] / "integration" / "benchmarks" / "memory.py"


def spent() -> float:
    """Return the processor time of all tables so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(graphs: list[str]) -> None:
    commands: tuple[tuple[str, Path, list[str]], ...] = (
        ("Beside torch's partitioners", HERE / "incumbent.py", graphs),
        ("Beside torch's budget solver", HERE / "incumbent.py", ["--budgets", *graphs]),
        ("Simulated and allocated memory", MEMORY, []),
        ("Large graphs", HERE / "large.py", []),
        ("Solvers", HERE / "solvers.py", []),
        ("Against the integer program", HERE / "yardstick.py", []),
    )
    versions = (platform.python_version(), *(m.__version__ for m in (torch, scipy, nx)))
    print("Python {}, torch {}, scipy {}, networkx {}".format(*versions), flush=True)
    dry = graphs == ["--dry"]
    for heading, script, own in commands:
        arguments = ["--dry"] if dry else own
        if dry and script == MEMORY:
            continue  # it needs the whole of fxstack, and has a test there
        print(f"\n## {heading}\n", flush=True)
        before = spent()
        subprocess.run([sys.executable, str(script), *arguments, "--markdown"], check=True)
        print(f"\n{spent() - before:.0f} s of processor time", flush=True)
    print(f"\n{spent():.0f} s of processor time in all", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
