"""Programs of the libraries around torch, under torch.compile and under fxstack: graphs, graph breaks, and times.

    python integration/benchmarks/library_programs.py [--programs gpytorch_regression ...] [--json FILE] [--dry] [--markdown]

Every program of ``tests/libraries`` runs unedited in processes of its own, with empty caches: in plain torch, with torch's
compiler, and with ``FXSTACK=1``. "First" is the first step with what it compiles, "step" the last of a few steps, which
compiles too in a program whose sizes keep changing. "Equal" says whether all losses are eager's within a relative 1e-4;
torch's compiler draws other random numbers than eager in some programs.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from libraries.run import LIBRARIES, SYSTEMS, run
from result_tables import Table

NAMES = {"torch": "torch.compile", "fxstack": "fxstack"}


def measure(program: str, systems: tuple[str, ...]) -> dict[str, dict]:
    """The results by system; one that fails has ``error``."""
    results = {}
    for system in systems:
        try:
            results[system] = run(program, system)
        except Exception as error:
            results[system] = {"error": str(error)}
    return results


def equal(results: dict[str, dict], system: str) -> str:
    mine, eager = (results[name].get("losses", []) for name in (system, "eager"))
    close = [math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6) for a, b in zip(mine, eager, strict=False)]
    return "yes" if close and all(close) and len(mine) == len(eager) else "no"


def row(program: str, results: dict[str, dict]) -> list[str]:
    eager = results["eager"]
    cells = [program, "failed" if "error" in eager else f"{eager['step'] * 1e3:.2f}"]
    for system in NAMES:
        found = results.get(system)
        if found is None or "error" in found:
            cells += ["" if found is None else "failed", "", "", "", ""]
            continue
        counts = str(found["graphs"]), str(found["breaks"]), equal(results, system)
        cells += [*counts, f"{found['first']:.2f}", f"{found['step'] * 1e3:.2f}"]
    return cells


def distribution(module: str) -> str:
    """The name of the distribution that has the module."""
    return importlib.metadata.packages_distributions()[module][0]


def header() -> list[str]:
    of_system = ("graphs", "breaks", "equal", "first s", "step ms")
    return [
        "program",
        "eager step ms",
        *(f"{name} {column}" for name in NAMES.values() for column in of_system),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", nargs="*", default=list(LIBRARIES), choices=LIBRARIES, metavar="NAME")
    parser.add_argument("--json", type=Path, help="all results, with the reasons of graph breaks")
    parser.add_argument("--dry", action="store_true", help="one program, without torch.compile")
    options = parser.parse_args()
    programs = ["vllm_backend"] if options.dry else options.programs
    systems = ("eager", "fxstack") if options.dry else SYSTEMS
    installed = [name for name in programs if importlib.util.find_spec(LIBRARIES[name])]
    packages = sorted({distribution(LIBRARIES[name]) for name in installed} - {"torch"})
    table, everything = Table(*header(), packages=packages), {}
    for program in installed:
        everything[program] = measure(program, systems)
        table.row(*row(program, everything[program]))
    for program, results in everything.items():
        for system, result in results.items():
            if "error" in result:
                print(
                    f"\n{program} under {system}: {result['error'].strip().splitlines()[-1]}", file=sys.stderr
                )
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
