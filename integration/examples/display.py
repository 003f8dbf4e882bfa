"""What the demo shows: progress while it trains, and the tables and the picture at the end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
from rich.console import Console
from rich.live import Live
from rich.table import Table
from runs import Run

from fxstack.cli.bench import WARMUP

mpl.use("Agg")
from matplotlib import pyplot as plt

REPORT_EVERY = 20
"""Steps between two lines of progress where the output is not a terminal."""


def readable(seconds: float) -> str:
    """Return minutes and seconds, ``1:05``."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@dataclass
class Progress:
    """A live table of the runs. It draws itself again four times a second, also while a system compiles."""

    console: Console
    runs: Sequence[Run]
    steps: int
    done: int = 0
    compiling: Run | None = None
    _since: float = field(default_factory=time.perf_counter)
    _first_ended: float | None = None

    def live(self) -> Live:
        return Live(self, console=self.console, refresh_per_second=4)

    def start(self, run: Run) -> None:
        """Show ``run`` as compiling if this is the first step of a compiled run."""
        self.compiling = run if run.compiles and not run.seconds else None
        self._since = time.perf_counter()
        if self.compiling and not self.console.is_terminal:
            self.console.print(f"{run.name}: compiling ...")

    def end_step(self) -> None:
        self.done += 1
        self.compiling = None
        if self._first_ended is None:
            self._first_ended = time.perf_counter()
        if not self.console.is_terminal and self.done % REPORT_EVERY == 0:
            self.console.print(self._title())

    def _title(self) -> str:
        title = f"step {self.done} of {self.steps}"
        if self._first_ended is None or self.done < 2:
            return title
        # The first step compiles: it says nothing about the steps that are left.
        per_step = (time.perf_counter() - self._first_ended) / (self.done - 1)
        return f"{title}, about {readable(per_step * (self.steps - self.done))} left"

    def _state(self, run: Run) -> str:
        if run is self.compiling:
            return f"compiling ... {time.perf_counter() - self._since:.0f} s"
        return f"{statistics.median(run.seconds[-10:]) * 1e3:.1f}" if run.seconds else ""

    def __rich__(self) -> Table:
        table = Table(title=self._title())
        for column in ("", "loss", "ms a step"):
            table.add_column(column, justify="right")
        for run in self.runs:
            table.add_row(run.name, f"{run.losses[-1]:.4f}" if run.losses else "", self._state(run))
        return table


def times_table(runs: Sequence[Run], title: str) -> Table:
    """Return a table of steps: median with the quartiles, first step, difference of the losses from eager's."""
    table = Table(title=title)
    for column in ("", "ms a step (quartiles)", "speedup", "first step s", "", "loss differs by"):
        table.add_column(column, justify="right")
    eager = runs[0]
    for run in runs:
        low, median, high = (1e3 * quartile for quartile in run.quartiles())
        origin = "from cache" if run.from_cache else "compiled" if run.compiles else ""
        difference = max(abs(a - b) for a, b in zip(eager.losses, run.losses, strict=True))
        table.add_row(
            run.name,
            f"{median:.1f} ({low:.1f} to {high:.1f})",
            f"{1e3 * eager.quartiles()[1] / median:.2f}",
            f"{run.seconds[0]:.2f}",
            origin,
            f"{difference:.1e}",
        )
    return table


def plot(runs: Sequence[Run], path: Path) -> None:
    """Draw losses and times of all runs over the steps into the PNG file ``path``."""
    figure, (loss_axis, time_axis) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for run, style in zip(runs, ("-", ":", "--"), strict=False):
        loss_axis.plot(run.losses, style, label=run.name)
        time_axis.plot([s * 1e3 for s in run.seconds[WARMUP:]], style, label=run.name, alpha=0.8)
    loss_axis.set(xlabel="step", ylabel="loss", title="Training loss (the lines should coincide)")
    time_axis.set(xlabel="step", ylabel="ms", title="Time a step", ylim=(0, None))
    for axis in (loss_axis, time_axis):
        axis.legend()
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
