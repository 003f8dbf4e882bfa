"""Train a small GPT on the text beside this file, eager and compiled side by side on the same batches.

Shows both losses live; at the end prints a table and writes ``training.png`` and ``report.html``.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib as mpl
import torch
from gpt import GPT, GPTConfig
from rich.console import Console
from rich.live import Live
from rich.table import Table

import fxstack
from fxstack.report import stage_seconds, write_report

mpl.use("Agg")
from matplotlib import pyplot as plt

CORPUS = Path(__file__).with_name("corpus.txt")


@dataclass
class Run:
    """One training run: the same weights, batches and random numbers as its twin."""

    name: str
    model: torch.nn.Module
    step: torch.nn.Module
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def train(self, tokens: torch.Tensor, targets: torch.Tensor, seed: int) -> None:
        torch.manual_seed(seed)  # both runs drop the same activations
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.step(tokens, targets)
        loss.backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(loss.item())

    @property
    def step_ms(self) -> float:
        """Median step, the first (compiling) ones left out."""
        return statistics.median(self.seconds[2:]) * 1e3


def make_run(name: str, model: torch.nn.Module, step: torch.nn.Module) -> Run:
    return Run(name, model, step, torch.optim.AdamW(model.parameters(), lr=1e-3))


class Text:
    """A corpus as character ids; ``batch`` draws random windows."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        characters = sorted(set(text))
        index = {character: i for i, character in enumerate(characters)}
        self.vocab = len(characters)
        self.ids = torch.tensor([index[character] for character in text])
        self.random = torch.Generator().manual_seed(0)

    def batch(self, size: int, block: int) -> tuple[torch.Tensor, torch.Tensor]:
        last = len(self.ids) - block - 1
        starts = torch.randint(0, last, (size,), generator=self.random).tolist()
        tokens = torch.stack([self.ids[s : s + block] for s in starts])
        targets = torch.stack([self.ids[s + 1 : s + 1 + block] for s in starts])
        return tokens, targets


def gradient_difference(eager: Run, compiled: Run, batch: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Largest difference of any gradient element between the two systems, at the same weights."""
    compiled.model.load_state_dict(eager.model.state_dict())
    for run in (eager, compiled):
        torch.manual_seed(0)
        run.model.zero_grad(set_to_none=True)
        run.step(*batch).backward()
    pairs = zip(eager.model.parameters(), compiled.model.parameters(), strict=True)
    return max(float((a.grad - b.grad).abs().max()) for a, b in pairs)


def progress_table(step: int, steps: int, runs: list[Run]) -> Table:
    table = Table(title=f"step {step} of {steps}")
    for column in ("", "loss", "ms a step"):
        table.add_column(column, justify="right")
    for run in runs:
        last = statistics.median(run.seconds[-10:]) * 1e3
        table.add_row(run.name, f"{run.losses[-1]:.4f}", f"{last:.1f}")
    return table


def plot(runs: list[Run], path: Path) -> None:
    figure, (loss_axis, time_axis) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for run, style in zip(runs, ("-", "--"), strict=True):
        loss_axis.plot(run.losses, style, label=run.name)
        time_axis.plot([s * 1e3 for s in run.seconds[2:]], style, label=run.name, alpha=0.8)
    loss_axis.set(xlabel="step", ylabel="loss", title="Training loss (the lines should coincide)")
    time_axis.set(xlabel="step", ylabel="ms", title="Time a step", ylim=(0, None))
    for axis in (loss_axis, time_axis):
        axis.legend()
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


def summary(eager: Run, compiled: Run, tokens: int, difference: float) -> dict[str, str]:
    log = fxstack.compile_log(compiled.step)
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in stage_seconds(log).items())
    losses = zip(eager.losses, compiled.losses, strict=True)
    return {
        "eager": f"{eager.step_ms:.1f} ms a step, {eager.step_ms / tokens * 1e3:.1f} us a token",
        "compiled": f"{compiled.step_ms:.1f} ms a step, {compiled.step_ms / tokens * 1e3:.1f} us a token",
        "speedup": f"{eager.step_ms / compiled.step_ms:.2f}x",
        "first compiled step": f"{compiled.seconds[0]:.2f} s",
        "compile seconds by stage": stages,
        "graphs": str(log.graph_count),
        "graph breaks": str(log.break_count),
        "largest difference in loss": f"{max(abs(a - b) for a, b in losses):.2e}",
        "largest difference in a gradient": f"{difference:.2e}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    arguments = parser.parse_args()

    text = Text(CORPUS)
    torch.manual_seed(0)
    config = GPTConfig(vocab=text.vocab, layers=arguments.layers, width=arguments.width)
    model = GPT(config)
    twin = copy.deepcopy(model)
    eager = make_run("eager", model, model)
    compiled = make_run("compiled", twin, fxstack.compile(twin, fullgraph=True))

    console = Console()
    with Live(console=console, refresh_per_second=4) as live:
        for step in range(arguments.steps):
            batch = text.batch(arguments.batch, config.block)
            for run in (eager, compiled):
                run.train(*batch, seed=step)
            live.update(progress_table(step + 1, arguments.steps, [eager, compiled]))

    difference = gradient_difference(eager, compiled, text.batch(arguments.batch, config.block))
    facts = summary(eager, compiled, arguments.batch * config.block, difference)
    table = Table(title=f"GPT, {config.layers} layers, {config.width} wide", show_header=False)
    for name, value in facts.items():
        table.add_row(name, value)
    console.print(table)

    arguments.output.mkdir(parents=True, exist_ok=True)
    picture = arguments.output / "training.png"
    report = arguments.output / "report.html"
    plot([eager, compiled], picture)
    write_report(compiled.step, report, title="GPT compiled by fxstack", facts=facts, pictures=[picture])
    console.print(f"wrote {picture} and {report}")


if __name__ == "__main__":
    main()
