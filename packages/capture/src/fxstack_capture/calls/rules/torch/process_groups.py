"""``torch.distributed``: what process groups are like is known while tracing; collectives end the graph, each once.

A process group is guarded by its identity, and its size, the rank in it and its name never change.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType
from typing import Any, NoReturn

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()

_LOGGED = "torch.distributed.distributed_c10d"
_LOGGERS = frozenset({"_exception_logger.<locals>.wrapper", "_time_logger.<locals>.wrapper"})
_METHODS = ("rank", "size", "name")
_PROPERTIES = ("group_name",)


def is_logged(fn: FunctionType) -> bool:
    """Whether torch reports calls of ``fn``, which it does of what processes do together."""
    return fn.__code__.co_qualname in _LOGGERS and fn.__module__ == _LOGGED


def end_graph(_trace: Trace, fn: FunctionType, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> NoReturn:
    """The rule of these: none of it is worth compiling, and a break in the middle of it would be one in every caller."""
    raise graph_break("unsupported-call", f"torch.distributed.{fn.__name__}")


def _facts() -> list[BuiltinFunctionType]:
    group = torch.distributed.ProcessGroup
    methods = [vars(group)[name].__func__ for name in _METHODS]
    getters = [vars(group)[name].fget for name in _PROPERTIES]
    return [fact for fact in (*methods, *getters) if type(fact) is BuiltinFunctionType]


if torch.distributed.is_available():
    RULES.plain(*_facts())
