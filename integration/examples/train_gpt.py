"""Train a small GPT on the text beside this file: eager, torch.compile and fxstack, step by step on the same batches.

Shows the losses live; at the end prints tables and writes ``training.png`` and ``report.html``. Ctrl-C ends the
training; the results of the steps so far are printed and written all the same.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
from display import Progress, plot, times_table
from gpt import GPT, GPTConfig
from rich.console import Console
from rich.table import Table
from runs import Run, Text, gradient_difference, make_runs

import fxstack
from fxstack.cli.bench import busy
from fxstack.report import stage_seconds, write_report

CORPUS = Path(__file__).with_name("corpus.txt")
SYSTEMS = ("eager", "torch.compile", "fxstack")


def train(text: Text, runs: list[Run], progress: Progress, size: int, block: int) -> None:
    """Train ``runs`` in turn, until all steps are done or the user presses Ctrl-C."""
    try:
        with progress.live():
            for step in range(progress.steps):
                batch = text.batch(size, block)
                for run in runs:
                    progress.start(run)
                    run.train(batch, seed=step)
                progress.end_step()
    except KeyboardInterrupt:
        progress.console.print(f"Stopped after {progress.done} of {progress.steps} steps.")
    for run in runs:
        run.drop_after(progress.done)


def compilation(compiled: Run, eager: Run, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, str]:
    """Return what fxstack compiled, and how far its gradients are from eager's."""
    log = fxstack.compile_log(compiled.step)
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in stage_seconds(log).items())
    return {
        "compile seconds by stage": stages,
        "graphs": str(log.graph_count),
        "graph breaks": str(log.break_count),
        "largest difference in a gradient": f"{gradient_difference(eager, compiled, batch):.2e}",
    }


def show(facts: dict[str, str], title: str) -> Table:
    table = Table(title=title, show_header=False)
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS, help="default: all three")
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    arguments = parser.parse_args()
    if arguments.steps < 1:
        parser.error(f"--steps must be at least 1, not {arguments.steps}")
    if "FXSTACK" in os.environ:
        parser.error("unset FXSTACK: with it, torch.compile is fxstack, and the comparison would be none")
    return arguments


def main() -> None:
    arguments = parse()
    console = Console()
    if warning := busy():
        console.print(warning, style="bold")
    text = Text(CORPUS)
    torch.manual_seed(0)
    config = GPTConfig(vocab=text.vocab, layers=arguments.layers, width=arguments.width)
    systems = [name for name in SYSTEMS if name in {"eager", *arguments.systems}]
    runs = make_runs(GPT(config), systems)

    progress = Progress(console, runs, arguments.steps)
    train(text, runs, progress, arguments.batch, config.block)
    if not progress.done:
        console.print("No step was done by every system: there are no results.")
        return

    console.print(times_table(runs, f"GPT, {config.layers} layers, {config.width} wide, CPU"))
    arguments.output.mkdir(parents=True, exist_ok=True)
    picture = arguments.output / "training.png"
    plot(runs, picture)
    written = [str(picture)]
    if runs[-1].name == "fxstack":
        facts = compilation(runs[-1], runs[0], text.batch(arguments.batch, config.block))
        console.print(show(facts, "fxstack"))
        report = arguments.output / "report.html"
        write_report(runs[-1].step, report, title="GPT compiled by fxstack", facts=facts, pictures=[picture])
        written.append(str(report))
    console.print(f"wrote {' and '.join(written)}")
    console.print("Next:", style="bold")
    console.print(f"  FXSTACK=1 {sys.executable} train.py    # your own program, unedited", soft_wrap=True)
    console.print(
        "  python -m nox -s demo -- --layers 12   # a deeper model, or this one again: from cache",
        soft_wrap=True,
    )


if __name__ == "__main__":
    main()
