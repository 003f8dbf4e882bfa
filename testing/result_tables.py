"""Tables of benchmarks: aligned text on a terminal, Markdown for ``docs/results`` with ``--markdown``.

A script makes one ``Table`` and prints each row when it is measured:

    sys.path.insert(0, str(ROOT / "testing"))
    from result_tables import Table

    table = Table("workload", "fxstack ns", "torch.compile ns")
    table.row("two operations", f"{mine:,.0f}", f"{other:,.0f}")

The import takes ``--markdown`` out of ``sys.argv``, so that the parser of a script need not know the option. A Markdown table
follows the command that repeats it, and the date, machine and versions.
"""

import datetime as dt
import importlib.metadata
import os
import platform
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKDOWN = "--markdown" in sys.argv
if MARKDOWN:
    sys.argv.remove("--markdown")
COMMAND = tuple(sys.argv)
"""The command line without ``--markdown``, before a script rewrites it for its dry mode."""
FIRST, OTHERS = 24, 9
"""The least widths of the first column and of the others on a terminal."""


def command():
    """The shell command that repeats this run, from the root of the repository."""
    script = Path(COMMAND[0]).resolve()
    place = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script.name
    return " ".join(["python", str(place), *COMMAND[1:]])


def conditions(*packages):
    """Date, versions and machine; ``packages`` names further distributions whose versions matter."""
    import torch

    versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    machine = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    facts = [
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
        f"Python {platform.python_version()}",
        f"torch {torch.__version__}",
        *versions,
        f"{os.cpu_count()} cores ({machine})",
        f"{torch.get_num_threads()} threads",
    ]
    return ", ".join(facts) + "."


class Table:
    """A table that is printed row by row. ``packages`` are passed to ``conditions``."""

    def __init__(self, *columns, packages=()):
        self.widths = [max(len(column), OTHERS if i else FIRST) for i, column in enumerate(columns)]
        print(f"`{command()}`\n\n{conditions(*packages)}\n" if MARKDOWN else conditions(*packages))
        self.row(*columns)
        if MARKDOWN:
            print("|" + "---|" * len(columns), flush=True)

    def row(self, *cells):
        """Print one row; ``cells`` are shown by ``str``."""
        texts = [str(cell) for cell in cells]
        if len(texts) != len(self.widths):
            message = f"{len(texts)} cells in a table of {len(self.widths)} columns"
            raise ValueError(message)
        if MARKDOWN:
            print("| " + " | ".join(texts) + " |", flush=True)
            return
        first, *others = zip(texts, self.widths, strict=True)
        print(first[0].ljust(first[1]), *(text.rjust(width) for text, width in others), flush=True)
