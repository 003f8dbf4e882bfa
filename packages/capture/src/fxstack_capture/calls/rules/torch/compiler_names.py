"""Queries about the compiler. The answers are the answers for a program that is being compiled."""

from __future__ import annotations

import typing
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()


@RULES.rule(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling)
def _yes(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    caller = trace.interp.current_frame().globals
    return caller.get("__name__") not in _COMPUTE_OTHERWISE


_COMPUTE_OTHERWISE = frozenset({"torch.optim.sgd", "torch.nn.modules.transformer"})
"""Modules whose results differ when they are compiled, for the sake of another compiler."""


@RULES.rule(torch.compiler.is_exporting)
def _is_exporting(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return trace.exporting


@RULES.rule(
    torch.jit.is_scripting,
    torch.jit.is_tracing,
    torch_compat.is_scripting,
    torch.onnx.is_in_onnx_export,
    torch_compat.is_tracing,
)
def _no(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return False


@RULES.rule(typing.cast)
def _cast(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[1]


# It raises for a name that no overload has; ``loads`` has looked up all others.
RULES.plain(torch_compat.OpOverloadPacket.__getattr__)
