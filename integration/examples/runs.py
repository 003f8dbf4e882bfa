"""Training runs of the demo: one for each system, over the same weights, batches and random numbers."""

from __future__ import annotations

import copy
import getpass
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

import fxstack
from fxstack.cli.bench import quartiles

Batch = tuple[torch.Tensor, torch.Tensor]


class Text:
    """A corpus as character ids; ``batch`` draws random windows."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        characters = sorted(set(text))
        index = {character: i for i, character in enumerate(characters)}
        self.vocab = len(characters)
        self.ids = torch.tensor([index[character] for character in text])
        self.random = torch.Generator().manual_seed(0)

    def batch(self, size: int, block: int) -> Batch:
        last = len(self.ids) - block - 1
        starts = torch.randint(0, last, (size,), generator=self.random).tolist()
        tokens = torch.stack([self.ids[s : s + block] for s in starts])
        targets = torch.stack([self.ids[s + 1 : s + 1 + block] for s in starts])
        return tokens, targets


@dataclass
class Run:
    """The training run of one system. ``step`` is ``model`` as the system compiled it."""

    name: str
    model: torch.nn.Module
    step: Callable[..., torch.Tensor]
    compiles: bool = True
    from_cache: bool = False
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def train(self, batch: Batch, seed: int) -> None:
        first = not self.seconds
        entries = _torch_cache_entries() if first else 0
        torch.manual_seed(seed)  # all runs drop the same activations
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.step(*batch)
        loss.backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - start)
        self.losses.append(loss.item())
        if first:
            self.from_cache = self._read_cache(entries)

    def drop_after(self, steps: int) -> None:
        """Forget the steps after ``steps``, which not every run has made."""
        del self.losses[steps:], self.seconds[steps:]

    def quartiles(self) -> tuple[float, float, float]:
        """Return the quartiles of the seconds a step, without the steps that compile."""
        return quartiles(self.seconds)

    def _read_cache(self, entries: int) -> bool:
        """Whether the first step took its compiled code from a cache on disk."""
        if self.name == "fxstack":
            return fxstack.compile_log(self.step).stored > 0
        return self.compiles and 0 < entries == _torch_cache_entries()


def _torch_cache_entries() -> int:
    """Return the number of graphs in the cache on disk of torch.compile."""
    default = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
    folder = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", default))
    return sum(1 for _ in folder.glob("fxgraph/*/*"))


def make_runs(model: torch.nn.Module, systems: Sequence[str]) -> list[Run]:
    """Return a run for each of ``systems`` (eager, torch.compile, fxstack), each with a copy of ``model``."""
    runs = []
    for system in systems:
        twin = copy.deepcopy(model)
        if system == "eager":
            runs.append(Run(system, twin, twin, compiles=False))
        elif system == "fxstack":
            runs.append(Run(system, twin, fxstack.compile(twin, fullgraph=True)))
        else:
            runs.append(Run(system, twin, torch.compile(twin, fullgraph=True)))
    return runs


def gradient_difference(eager: Run, compiled: Run, batch: Batch) -> float:
    """Return the largest difference of a gradient's elements between two systems, at the same weights."""
    compiled.model.load_state_dict(eager.model.state_dict())
    for run in (eager, compiled):
        torch.manual_seed(0)
        run.model.zero_grad(set_to_none=True)
        run.step(*batch).backward()
    pairs = zip(eager.model.parameters(), compiled.model.parameters(), strict=True)
    return max(float((a.grad - b.grad).abs().max()) for a, b in pairs)
