"""Every table of docs/results/partition.md, in its order: ``python tables.py [GRAPH ...]``.

Takes about half an hour, most of it in torch's budget solver; with names of graphs, only those of the corpus are compared.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
MEMORY = HERE.parents[2] / "integration" / "benchmarks" / "memory.py"


def main(graphs: list[str]) -> None:
    commands: tuple[tuple[str, Path, list[str]], ...] = (
        ("Beside torch's partitioners", HERE / "incumbent.py", graphs),
        ("Beside torch's budget solver", HERE / "incumbent.py", ["--budgets", *graphs]),
        ("Simulated and allocated memory", MEMORY, []),
        ("Large graphs", HERE / "large.py", []),
        ("Solvers", HERE / "solvers.py", []),
        ("Against the integer program", HERE / "yardstick.py", []),
    )
    for heading, script, arguments in commands:
        print(f"\n## {heading}\n", flush=True)
        subprocess.run([sys.executable, str(script), *arguments], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
