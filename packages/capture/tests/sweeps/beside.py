"""What the sweeps over torch's own databases share: run once in eager and once captured, compare, count.

Run as a script it does nothing; ``operators``, ``modules``, ``optimizers`` and ``architectures`` use it.
"""

from __future__ import annotations

import copy
import random
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from fxstack_capture import optimize


class Observer:
    """Graphs and reasons of graph breaks of one captured callable."""

    def __init__(self) -> None:
        self.graphs = 0
        self.breaks: list[str] = []

    def on_trace(self, seconds: float) -> None:
        pass

    def on_break(self, record: Any) -> None:
        self.breaks.append(f"{record.reason.id}: {record.detail}")

    def backend(self, graph_module, example_inputs):
        self.graphs += 1
        return graph_module.forward


def captured(fn) -> tuple[Any, Observer]:
    """``fn`` captured with the backend that runs graphs as they are."""
    seen = Observer()
    return optimize(seen.backend, observer=seen)(fn), seen


def seeded(call) -> Any:
    """What ``call()`` returns or raises, from a fixed state of the generators."""
    torch.manual_seed(0)
    random.seed(0)
    try:
        return call()
    except Exception as error:
        return error


def difference(found: Any, expected: Any, rtol: float = 0.0, atol: float = 0.0) -> str | None:
    """In words, the first difference between two results; None where there is none."""
    if isinstance(expected, Exception) or isinstance(found, Exception):
        same = type(found) is type(expected) and str(found) == str(expected)
        return None if same else f"{found!r} is not {expected!r}"
    ours, spec_ours = tree_flatten(found)
    theirs, spec_theirs = tree_flatten(expected)
    if spec_ours != spec_theirs:
        return f"structure {spec_ours} is not {spec_theirs}"
    return next(filter(None, (_leaf(a, b, rtol, atol) for a, b in zip(ours, theirs))), None)


_FACTS = ("dtype", "shape", "layout", "requires_grad", "is_leaf")


def _leaf(found: Any, expected: Any, rtol: float, atol: float) -> str | None:
    if type(found) is not type(expected):
        return f"{type(found)} is not {type(expected)}"
    if not isinstance(expected, torch.Tensor):
        return None if found == expected or found != found else f"{found!r} is not {expected!r}"
    for fact in _FACTS:
        if getattr(found, fact) != getattr(expected, fact):
            return f"{fact}: {getattr(found, fact)} is not {getattr(expected, fact)}"
    if expected.layout is torch.strided and found.stride() != expected.stride():
        return f"stride: {found.stride()} is not {expected.stride()}"
    try:
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        return str(error).replace("\n", " ")
    return None


@dataclass
class Tally:
    """Counts of one sweep; prints what is not equal as it comes."""

    verbose: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.perf_counter)

    def add(self, name: str, wrong: str | None, seen: Observer) -> None:
        self.counts["run"] += 1
        self.counts["equal" if wrong is None else "different"] += 1
        self.counts["one graph"] += seen.graphs == 1 and not seen.breaks
        self.counts["unbroken"] += not seen.breaks
        self.counts["broken"] += bool(seen.breaks)
        self.reasons.update(set(seen.breaks))
        if wrong is not None:
            print(f"DIFFERENT {name}: {wrong[:300]}", flush=True)
        elif seen.breaks and self.verbose:
            print(f"broken {name}: {sorted(set(seen.breaks))}", flush=True)

    def report(self) -> int:
        print(dict(self.counts), f"{time.perf_counter() - self.started:.0f} s")
        for reason, count in self.reasons.most_common():
            print(f"{count:5} {reason}")
        return int(self.counts["different"] > 0)


def clones(value: Any) -> Any:
    """Copies of inputs; what has history becomes a leaf."""
    if isinstance(value, torch.Tensor) and not value.is_leaf:
        return value.detach().clone().requires_grad_()
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return type(value)(map(clones, value))
    if type(value) is dict:
        return {key: clones(item) for key, item in value.items()}
    return copy.deepcopy(value)


warnings.simplefilter("ignore")
