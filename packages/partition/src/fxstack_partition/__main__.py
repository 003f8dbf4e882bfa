"""``python -m fxstack_partition``: compare partitioners on saved joint graphs, or explain one of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from lzma import LZMAError
from pathlib import Path

from fxstack_interchange import StageGraph
from fxstack_partition import corpus
from fxstack_partition.api import partition
from fxstack_partition.joint.joint import analyze
from fxstack_partition.optional import matplotlib_figure
from fxstack_partition.options import PartitionOptions
from fxstack_partition.registry import REGISTRY
from fxstack_partition.report.compare import Comparison, compare
from fxstack_partition.report.explain import explain
from fxstack_partition.report.html import to_html
from fxstack_partition.report.plots import plot_pareto, plot_timeline


def _budget(text: str) -> float | int:
    """Return a budget of the command line: a fraction if the text has a point (``0.5``), else bytes."""
    return float(text) if "." in text else int(text)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with the commands ``compare``, ``explain`` and ``corpus``."""
    parser = argparse.ArgumentParser(prog="fxstack_partition", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    table = commands.add_parser("compare", help="a table, and an HTML page or pictures on request")
    table.add_argument("graphs", nargs="+", help="interchange files (.fxg, .fxg.xz) or corpus names")
    table.add_argument("--partitioners", nargs="+", default=["save_all", "min_cut", "budget"])
    table.add_argument("--budgets", nargs="+", type=_budget, default=[0.2, 0.5])
    table.add_argument("--html", type=Path, help="write one page with tables and plots")
    table.add_argument("--png", type=Path, help="write plots into this directory")
    reasons = commands.add_parser("explain", help="saved values with reasons")
    reasons.add_argument("graph")
    reasons.add_argument("--partitioner", default="min_cut")
    reasons.add_argument("--budget", type=_budget)
    commands.add_parser("corpus", help="list the graphs that are shipped")
    return parser


def read(name: str) -> StageGraph:
    """Return the graph of a file, or of the corpus if no file has this name."""
    return corpus.load_any(name) if Path(name).exists() else corpus.load(name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Return the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "corpus":
            _print("\n".join(corpus.names()))
        elif arguments.command == "explain":
            options = replace(PartitionOptions(), budget=arguments.budget)
            _print(str(explain(partition(read(arguments.graph), arguments.partitioner, options))))
        else:
            _compare(arguments)
    except (LookupError, ValueError, ImportError, OSError, LZMAError) as error:
        text = error if isinstance(error, OSError) else error.args[0] if error.args else error
        sys.stderr.write(f"fxstack_partition: {text}\n")
        return 2
    return 0


def _compare(arguments: argparse.Namespace) -> None:
    """Run the command ``compare``: print a table for each graph, and write the page and the pictures if asked."""
    graphs = {name: read(name) for name in arguments.graphs}
    for graph in graphs.values():
        analyze(graph)
    for name in arguments.partitioners:
        REGISTRY.get(name)
    # Find output paths that cannot be written before the comparison, which may take minutes.
    if arguments.html is not None:
        arguments.html.parent.mkdir(parents=True, exist_ok=True)
        arguments.html.open("a").close()
    if arguments.png is not None:
        arguments.png.mkdir(parents=True, exist_ok=True)
        matplotlib_figure((1, 1))
    results: dict[str, Comparison] = {}
    for name, graph in graphs.items():
        results[name] = compare(graph, arguments.partitioners, arguments.budgets)
        _print(f"{name}: {results[name]}\n")
    if arguments.html is not None:
        arguments.html.write_text(to_html(results), encoding="utf-8")
    if arguments.png is not None:
        for name, comparison in results.items():
            stem = Path(name).name.partition(".")[0]
            for kind, plot in (("timeline", plot_timeline), ("pareto", plot_pareto)):
                plot(comparison, stem).savefig(arguments.png / f"{stem}-{kind}.png", dpi=100)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
