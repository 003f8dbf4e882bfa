"""What torch's control flow (``cond``, ``while_loop``, ``map``, ``scan``) does before it comes to its operators.

Called in plain Python, these functions compile themselves with torch's own compiler. In compiled code that is ours.
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
    """``wrap(fn, *args)`` calls ``fn``: it marks a region for compilers that keep it as one."""
    fn, *rest = args
    return trace.calls.call(fn, tuple(rest), kwargs)


@RULES.rule(invoke_subgraph_placeholder)
def _region(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A region that torch's compiler would compile once for all of its calls: it is compiled at each of them."""
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
    """Interpret ``fn``; where the graph has to end inside, it ends before the call, so that plain Python makes all of it.

    Called as a whole, the function decides like in eager what it takes: the operator alone, below it, takes anything.
    """
    try:
        return trace.interp.call_function(fn, args, kwargs)
    except GraphBreak as reason:
        reason.below_c_code = False  # there is no other way to make the call
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
    """As ``torch.cond``, whose own code loads torch's compiler: branch on what is known, check, or ask the operator."""
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
