"""``torch.distributed``: properties of process groups are constants; each collective breaks the graph.

A process group is guarded by identity. Its size, its rank and its name never change.
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
    """Whether torch logs calls of ``fn``. Torch logs collective operations."""
    return fn.__code__.co_qualname in _LOGGERS and fn.__module__ == _LOGGED


def end_graph(_trace: Trace, fn: FunctionType, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> NoReturn:
    """The rule of logged functions: break the graph at the call.

    Compiling these functions brings nothing, and a break inside of them would break every caller, too.
    """
    raise graph_break("unsupported-call", f"torch.distributed.{fn.__name__}")


def _facts() -> list[BuiltinFunctionType]:
    group = torch.distributed.ProcessGroup
    methods = [vars(group)[name].__func__ for name in _METHODS]
    getters = [vars(group)[name].fget for name in _PROPERTIES]
    return [fact for fact in (*methods, *getters) if type(fact) is BuiltinFunctionType]


if torch.distributed.is_available():
    RULES.plain(*_facts())
