"""Optimizers whose steps all depend on data: they run in plain Python, and their closures are compiled.

LBFGS compares norms and losses after each small operation, and appends to lists. A trace would give dozens of
graphs of a few operators each, and new graphs for every length of the history.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NoReturn

import torch
from torch.optim import lbfgs

from fxstack_capture import native
from fxstack_capture.breaks import graph_break
from fxstack_capture.trace.state import Trace

# Limits: torch.compile marks LBFGS and SparseAdam, and their closures, as not to be compiled; the marks stay
# for the rest of the process. SGD(fused=True) of half precision runs in plain Python because torch's kernel
# reads momentum that was not written yet.


def _codes(module: ModuleType) -> Iterator[CodeType]:
    """The code of all functions and methods of a module without decorators, and of inner functions."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    members = [member for cls in own if isinstance(cls, type) for member in vars(cls).values()]
    for value in (*own, *members):
        if isinstance(value, FunctionType):
            yield from _with_inner(inspect.unwrap(value).__code__)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)


def end_graph(_trace: Trace, fn: FunctionType, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> NoReturn:
    """The rule of ``step``: break the graph, so that ``step`` runs in plain Python."""
    raise graph_break("data-dependent-branch", f"{fn.__qualname__}, which is decided by data throughout,")


STEP: Final[CodeType] = inspect.unwrap(torch.optim.LBFGS.step).__code__

if native.AVAILABLE:
    for _code in _codes(lbfgs):
        if _code.co_name != "__init__":
            native.skip(_code)
