"""The Python functions of torch's control flow (``cond``, ``while_loop``, ``map``, ``scan``).

In plain Python, these functions compile themselves with torch's own compiler before they call their
operators. In compiled code, this tracer interprets them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import GraphBreak
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.torch_compat import (
    associative_scan,
    invoke_subgraph_placeholder,
    map_,
    pytree,
    scan,
    while_loop,
)
from fxstack_capture.torch_compat import higher_order_utils as utils
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()

_CALL_COMPILED = getattr(utils, "_hop_compile_and_call", None)  # not in all versions of torch


@RULES.rule(torch_compat.wrap)
def _wrapped(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``wrap(fn, *args)`` calls ``fn``.

    ``wrap`` marks a region for compilers that keep the region separate.
    """
    fn, *rest = args
    return trace.calls.call(fn, tuple(rest), kwargs)


@RULES.rule(invoke_subgraph_placeholder)
def _region(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A region that torch's compiler would compile once for all of its calls. Here each call is inlined."""
    fn, *rest = args
    return trace.calls.call(fn, tuple(rest), kwargs)


def _call_compiled(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    fn, inputs, *named = args
    return trace.calls.call(fn, inputs, *(named or [kwargs.get("kwargs") or {}]))


if _CALL_COMPILED is not None:
    RULES.add(_CALL_COMPILED, _call_compiled)


@RULES.rule(torch_compat.maybe_compile_and_run_fn)
def _run(trace: Trace, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    return trace.calls.call(args[0], args[1:], {})


def _whole(trace: Trace, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Interpret ``fn``. If the graph has to break inside, the graph breaks before the call.

    Plain Python then makes the whole call. The whole function checks its arguments as in eager; the operator
    that it calls accepts any arguments.
    """
    try:
        return trace.interp.call_function(fn, args, kwargs)
    except GraphBreak as reason:
        reason.below_c_code = False  # this call has no polyfill
        raise


def _add_whole(fn: object, as_: object = None) -> None:
    body = fn if as_ is None else as_

    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _whole(trace, body, args, kwargs)

    RULES.add(fn, rule)


def _choose(
    pred: object,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...] | list[Any] = (),
) -> Any:
    """Do what ``torch.cond`` does: branch on a known value, or check the arguments and call the operator.

    The code of ``torch.cond`` itself would load torch's compiler.
    """
    if isinstance(pred, (bool, int, float)):
        return true_fn(*operands) if pred else false_fn(*operands)
    if not isinstance(pred, (torch.Tensor, torch.SymBool)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")  # noqa: TRY004 - torch's
    if isinstance(pred, torch.Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")  # noqa: TRY004
    if not isinstance(operands, (tuple, list)) or pytree.tree_any(
        lambda t: not isinstance(t, torch.Tensor), operands
    ):
        raise RuntimeError(
            "Expect operands to be a tuple of possibly nested dict/list/tuple that only "
            f"consists of tensor leaves, but got {operands}."
        )
    return torch.ops.higher_order.cond(pred, true_fn, false_fn, operands)


_add_whole(torch.cond, _choose)
for _function in (while_loop, map_, scan, associative_scan):
    _add_whole(_function)
