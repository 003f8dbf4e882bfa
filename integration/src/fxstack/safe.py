"""``mode="safe"``: time a compiled graph and eager torch on the program's own calls, and keep the faster.

One of the two serves each call, so nothing is computed twice and no side effect is repeated; both give the
same results. Calls alternate between them until each has been timed a few times. Without gradients, the
duration of the call counts. With gradients, most of the work follows in a backward that the program runs. So
the time from one call to the next counts: a whole training step, in which only this graph differs. Graphs of
one program alternate in different patterns (Walsh functions, which are orthogonal over all calls), so that
the choice for one graph does not influence the time of another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from fxstack.torch_compat import pytree

Call = Callable[..., Any]

# Limits: the decision uses the shortest of eight calls of each side (training: of eight whole steps), once.
# Inputs of other sizes or a busier machine are not noticed. Four or more graphs of a training program share
# patterns of calls.

WARM_UP = 4
"""Number of first calls whose times do not count, half of them on each side.

These calls compile backwards and fill caches.
"""
TIMED = 16
PATTERNS = 3
MARGIN = 0.97
"""Eager is kept only if it takes less than this fraction of the compiled graph's time."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice for graph number ``graph``, and the shortest time of each side in seconds."""

    graph: int
    kept: str
    """``eager`` or ``compiled``."""
    compiled: float
    eager: float


@dataclass(eq=False)
class Trial:
    """A callable that replaces ``compiled``, and becomes the faster of ``compiled`` and ``eager``."""

    compiled: Call
    eager: Call
    number: int
    """The number of the graph in the log. It selects the pattern of calls."""
    decided: Callable[[Choice], None]
    """Called once, with the choice."""
    clock: Callable[[], float] = time.perf_counter
    kept: Call | None = None
    """The chosen callable; None while calls are timed."""
    _calls: int = 0
    """The number of calls so far."""
    _times: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    """The counted seconds of calls. Key True: calls of eager. Key False: calls of the compiled graph."""
    _last: tuple[bool, float, bool] | None = None
    """Whether eager served the last call, the start of the call, and whether its time counts."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, *args: object) -> Any:
        if self.kept is not None:
            return self.kept(*args)
        with self._lock:
            position, self._calls = self._calls, self._calls + 1
        in_eager = self._serves_eager(position)
        _wait(args)
        start = self.clock()
        self._finish_period(start)
        results = (self.eager if in_eager else self.compiled)(*args)
        counts = position >= WARM_UP
        if needs_backward(results):
            self._last = (in_eager, start, counts)
        else:
            self._last = None
            _wait(args)
            self._add(in_eager, self.clock() - start, counts)
        return results

    def _serves_eager(self, position: int) -> bool:
        """Whether call number ``position`` runs in eager: the second half of the warm-up, later calls by the
        graph's pattern.
        """
        if position < WARM_UP:
            return position >= WARM_UP // 2
        return bool((position - WARM_UP) >> (self.number % PATTERNS) & 1)

    def _finish_period(self, now: float) -> None:
        """Add the time since the start of the last call to the side that served this call."""
        if self._last is not None:
            in_eager, start, counts = self._last
            self._add(in_eager, now - start, counts)

    def _add(self, in_eager: bool, seconds: float, counts: bool) -> None:
        """Keep a time. Once both sides have enough times, keep the faster side and report the choice."""
        with self._lock:
            if counts:
                self._times[in_eager].append(seconds)
            enough = all(len(times) >= TIMED // 2 for times in self._times.values())
            if not enough or self.kept is not None:
                return
            compiled, eager = min(self._times[False]), min(self._times[True])
            slower = eager < MARGIN * compiled
            self.kept = self.eager if slower else self.compiled
        self.decided(Choice(self.number, "eager" if slower else "compiled", compiled, eager))


def needs_backward(results: object) -> bool:
    """Return whether a backward may follow: some result requires a gradient."""
    leaves = pytree.tree_leaves(results)
    return torch.is_grad_enabled() and any(
        isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves
    )


def _wait(args: tuple[Any, ...]) -> None:
    """Wait for the GPU if an argument is a tensor on a GPU."""
    if any(isinstance(arg, torch.Tensor) and arg.is_cuda for arg in args):
        torch.cuda.synchronize()
