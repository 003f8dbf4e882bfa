"""Our partitioners and torch's on the corpus: saved bytes, simulated peak, recomputed operations, time.

python incumbent.py [--budgets] [GRAPH ...]

torch's are its default, its min-cut, and (with ``--budgets``) its min-cut at activation memory budgets; ours are
simulated and timed in the same way, on the same joint graphs.
"""

from __future__ import annotations

import math
import sys
import warnings
from functools import partial

from torch._functorch import config
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition

from fxstack_partition import PartitionOptions, compare, corpus, from_partition_fn
from fxstack_partition.joint import analyze

BUDGETS = (0.1, 0.3, 0.5, 0.7, 0.9)


def _at_budget(joint, options, budget):
    with config.patch(activation_memory_budget=budget):
        return from_partition_fn(min_cut_rematerialization_partition, check=False)(joint, options)


def row(joint, name, options=PartitionOptions()):  # noqa: B008 - frozen
    return compare(joint, [name], (), options).rows[0]


def defaults(names: list[str]) -> None:
    torch_default = from_partition_fn(default_partition, check=False)
    torch_min_cut = from_partition_fn(min_cut_rematerialization_partition, check=False)
    print("| graph | nodes | torch default | torch min-cut | save_all | min_cut | ours / better |")
    print("|---|---|---|---|---|---|---|")
    logs = []
    for name in names:
        joint = corpus.load(name)
        rows = [row(joint, p) for p in (torch_default, torch_min_cut, "save_all", "min_cut")]
        cells = [
            f"{r.saved_bytes / 1e6:.2f} / {r.peak / 1e6:.2f} / {r.solver_seconds * 1e3:.0f}"
            for r in rows
        ]
        ratio = rows[3].peak / min(rows[0].peak, rows[1].peak)
        logs.append(math.log(ratio))
        nodes = len(joint.graph_module.graph.nodes)
        print("|", " | ".join([name, str(nodes), *cells, f"{ratio:.3f}"]), "|", flush=True)
    print(f"\ngeometric mean of the peaks' ratios: {math.exp(sum(logs) / len(logs)):.3f}\n")


def budgets(names: list[str]) -> None:
    """torch at each budget, then ours at the peak that torch reached."""
    print(
        "| graph | budget | torch: peak, MFLOP, us again | ours at torch's peak: MFLOP, us again |"
    )
    print("|---|---|---|---|")
    for name in names:
        joint = corpus.load(name)
        base = row(joint, "save_all").step_seconds
        for budget in BUDGETS:
            theirs = row(joint, partial(_at_budget, budget=budget))
            ours = row(joint, "budget", PartitionOptions(budget=theirs.peak))
            mine = f"{ours.recomputed_flops / 1e6:.2f}, {(ours.step_seconds - base) * 1e6:.0f}"
            mine = ours.error or mine
            spent = (theirs.step_seconds - base) * 1e6
            there = f"{theirs.peak / 1e6:.3f}, {theirs.recomputed_flops / 1e6:.2f}, {spent:.0f}"
            print("|", " | ".join([name, f"{budget:g}", there, mine]), "|", flush=True)


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore")
    names = [a for a in arguments if not a.startswith("--")] or list(corpus.names())
    analyze(corpus.load(names[0]))  # so that no first run pays for imports
    (budgets if "--budgets" in arguments else defaults)(names)


if __name__ == "__main__":
    main(sys.argv[1:])
