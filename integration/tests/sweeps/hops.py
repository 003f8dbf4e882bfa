"""Every operator of torch's ``hop_db``, forward and backward, static and dynamic, with two backends, beside eager.

    python integration/tests/sweeps/hops.py [OPERATOR ...] [--dtypes float32,int64,...] [--markdown] [--dry]

Prints what differs, and a table: for each way of calling, whether all samples are exact and in one graph.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[3] / "testing"))

from hop_samples import OPERATORS, check
from result_tables import Table

import fxstack

os.environ.setdefault("FXSTACK_RAISE_FAILURES", "1")  # a defect is no fallback here

DTYPES = ("float32", "float64", "half", "int64", "int8", "bool")
BACKENDS = ("eager", "inductor")
WAYS = tuple(itertools.product(BACKENDS, (False, True), (False, True)))
"""Backend, with gradients, with symbolic sizes."""


@dataclass(slots=True)
class Cell:
    """What the samples of one operator did in one way of calling."""

    samples: int = 0
    exact: int = 0
    whole: int = 0
    raising: int = 0
    breaks: Counter[str] = field(default_factory=Counter)

    def text(self) -> str:
        """``yes``: all exact and in one graph; else how many."""
        if not self.samples:
            return ""
        if self.raising == self.samples:
            return "eager raises"
        if self.exact < self.samples:
            return f"{self.samples - self.exact} of {self.samples} differ"
        if self.whole < self.samples:
            return f"{self.samples - self.whole} of {self.samples} break"
        return "yes"


def inputs(name: str, dtype: torch.dtype, *, gradients: bool) -> list[Any]:
    """The samples of an operator. With gradients also those of which the database says that they have none."""
    operator = OPERATORS[name]
    torch.manual_seed(0)
    return list(operator.sample_inputs_func(operator, "cpu", dtype, gradients))


def run(name: str, dtypes: tuple[str, ...], only: slice) -> dict[tuple[str, bool, bool], Cell]:
    """The cells of an operator; prints each difference and each break."""
    allowed = OPERATORS[name].dtypes or {torch.float32}
    cells = {}
    for backend, gradients, dynamic in WAYS:
        cell = cells[backend, gradients, dynamic] = Cell()
        for dtype in (getattr(torch, d) for d in dtypes):
            if dtype not in allowed or (gradients and not dtype.is_floating_point):
                continue
            for sample in inputs(name, dtype, gradients=gradients)[only]:
                outcome = check(name, sample, dynamic=dynamic, backend=backend)
                fxstack.reset()
                torch.compiler.reset()
                cell.samples += 1
                cell.raising += outcome.eager_raises
                cell.exact += outcome.difference is None
                cell.whole += outcome.graphs == 1 and not outcome.breaks or outcome.eager_raises
                cell.breaks.update(outcome.breaks)
                if outcome.difference:
                    way = f"{backend} {dtype} {gradients=} {dynamic=}"
                    print(f"  {name} {way}: {outcome.difference[:300]}", flush=True)
    return cells


def columns() -> list[str]:
    """The names of the columns: one for each way of calling."""
    ways = (
        f"{backend}, {'backward' if gradients else 'forward'}, {'dynamic' if dynamic else 'static'}"
        for backend, gradients, dynamic in WAYS
    )
    return ["operator", "samples", *ways, "breaks"]


def row(name: str, cells: dict[tuple[str, bool, bool], Cell]) -> list[str]:
    """The row of an operator."""
    breaks = sum((cell.breaks for cell in cells.values()), Counter())
    count = str(sum(cell.samples for cell in cells.values()))
    return [name, count, *(cell.text() for cell in cells.values()), ", ".join(f"`{b}`" for b in breaks)]


def _is_of(operator: str, name: str) -> bool:
    """Whether ``name`` is the operator's name or its first words."""
    return operator == name or operator.startswith(name + " ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "operators", nargs="*", help="names as in the table, or their first words: cond, 'map nested'"
    )
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--dry", action="store_true", help="one sample of one operator")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    chosen = ["map simple"] if options.dry else options.operators or list(OPERATORS)
    unknown = [name for name in chosen if not any(_is_of(operator, name) for operator in OPERATORS)]
    if unknown:
        parser.error(f"no operator {unknown[0]!r}; the operators are {', '.join(OPERATORS)}")
    names = [operator for operator in OPERATORS if any(_is_of(operator, name) for name in chosen)]
    only = slice(1) if options.dry else slice(None)
    dtypes = DTYPES if options.dtypes == "all" else tuple(options.dtypes.split(","))
    found, table = {}, Table(*columns())
    for name in names:
        found[name] = run(name, dtypes, only)
        table.row(*row(name, found[name]))
    cells = [cell for of in found.values() for cell in of.values()]
    differing = sum(cell.samples - cell.exact for cell in cells)
    total = sum(cell.samples for cell in cells)
    broken = sum(cell.samples - cell.whole for cell in cells)
    print(f"{total} samples, {differing} differ, {broken} are not one graph")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
