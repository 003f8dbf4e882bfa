"""Writes docs/calls.md: what decides a call of each public callable; the tests compare the two.

The answers are those of ``python -m fxstack_capture rule NAME``, for Python 3.11 and torch 2.15.
"""

import builtins
import collections
import functools
import inspect
import itertools
import math
import operator
from pathlib import Path

import torch

from fxstack_capture.calls.decisions.explaining import explain_callable

MODULES = (
    builtins,
    itertools,
    functools,
    collections,
    operator,
    math,
    torch,
    torch.nn.functional,
    torch.Tensor,
)
INTRODUCTION = """# What decides a call

For each public callable of Python's and torch's main modules, the rule or case that decides what a call does in a
compiled function. `fxstack rule NAME` (with capture alone `python -m fxstack_capture rule NAME`) gives the same answer for any callable,
with the line of the rule, the facts about a C function on which a trace depends, and the later rules that the rule
hides. Files are relative to `packages/capture/src/fxstack_capture`. This page is generated from the rules.
"""


def answers(module):
    """Yield name, decider and file of every public callable of a module or class."""
    for name in dir(module):
        value = getattr(module, name, None)
        if not name.startswith("_") and callable(value) and not inspect.ismodule(value):
            decider = explain_callable(value, name).decided_by
            yield name, decider.name, decider.place.rpartition(":")[0]


def render() -> str:
    parts = [INTRODUCTION]
    for module in MODULES:
        groups = collections.defaultdict(list)
        for name, decider, place in answers(module):
            groups[decider, place].append(name)
        title = f"{module.__module__}.{module.__name__}" if isinstance(module, type) else module.__name__
        parts.append(f"## {title}\n\n| decided by | in | callables |\n|---|---|---|")
        parts += [
            f"| {decider} | `{place}` | {' '.join(f'`{name}`' for name in sorted(names))} |"
            for (decider, place), names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        ]
        parts.append("")
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("calls.md").write_text(render(), encoding="utf-8")
