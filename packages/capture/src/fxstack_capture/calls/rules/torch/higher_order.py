"""The Python functions of torch's control flow (``cond``, ``while_loop``, ``map``, ``scan``).

In plain Python, these functions compile themselves with torch's own compiler before they call their
operators. In compiled code, this tracer interprets them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from fxstack_capture import torch_compat
from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.calls.rules import RULES
from fxstack_capture.torch_compat import (
    associative_scan,
    generic_associative_scan,
    invoke_subgraph_placeholder,
    map_,
    pytree,
    scan,
    while_loop,
)
from fxstack_capture.torch_compat import higher_order_utils as utils
from fxstack_capture.torch_side.higher_order.operators import calls_to_replace
from fxstack_capture.torch_side.recording.graph import SYMBOLIC
from fxstack_capture.trace.state import Args, Kwargs, Trace

_CALL_COMPILED = getattr(utils, "_hop_compile_and_call", None)  # not in all versions of torch


@RULES.rule(torch_compat.maybe_compile_and_run_fn)
def _inline(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Call the first argument with the others: a function that other compilers compile on its own."""
    return trace.calls.call(args[0], args[1:], kwargs)


@RULES.rule(invoke_subgraph_placeholder)
def _call_region(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Call a function of ``torch.compiler.nested_compile_region``: the node names its graph as the identifier."""
    function, *operands = args
    return trace.torch.call(torch.ops.higher_order.invoke_subgraph, (function, "subgraph", *operands), kwargs)


def _call_compiled(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Call the function that torch would compile first."""
    function, inputs, *named = args
    return trace.calls.call(function, inputs, *(named or [kwargs.get("kwargs") or {}]))


if _CALL_COMPILED is not None:
    RULES.add(_call_compiled, _CALL_COMPILED)


def _call_operator(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Call a higher-order operator, the first argument: record its node."""
    operator, *rest = args
    return trace.torch.call(operator, tuple(rest), kwargs)


RULES.add(
    _call_operator,
    torch_compat.HigherOrderOperator.__call__,
    torch_compat.BaseHOP.__call__,
    *calls_to_replace(),
)
# The ``__call__`` of other operators checks its arguments, and calls that of ``HigherOrderOperator``.


@RULES.rule(torch_compat.foreach_map)
def _foreach_map(trace: Trace, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Record ``foreach_map(op, *operands)``, whose body calls ``op`` for each element of the lists."""
    if not args:
        return trace.interp.call_function(fn, args, kwargs)  # raises eager's error
    body = partial(_for_each, args[0])
    vars(body)["__wrapped__"] = args[0]  # for messages
    return trace.calls.call(torch_compat.foreach_map_operator, (body, *args[1:]), kwargs)


def _for_each(op: Callable[..., Any], *operands: Any) -> Any:
    """Call ``op`` with the elements of the lists at the same position; every call gets the operands that are no lists."""
    lists = [operand for operand in operands if isinstance(operand, (list, tuple))]
    if not lists:
        return op(*operands)
    return [
        op(*[x[i] if isinstance(x, (list, tuple)) else x for x in operands])
        for i in range(min([len(x) for x in lists]))
    ]


@RULES.rule(torch.cond, while_loop, map_, scan, associative_scan)
def _call_whole(trace: Trace, fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Interpret ``fn``. If the graph has to break inside, the graph breaks before the call.

    Plain Python then makes the whole call. The whole function checks its arguments as in eager; the operator
    that it calls accepts any arguments.
    """
    if fn is torch.cond:
        _demand_arguments(fn, args, kwargs)
    try:
        return trace.interp.call_function(_choose if fn is torch.cond else fn, args, kwargs)
    except GraphBreak as reason:
        reason.below_c_code = False  # this call has no polyfill
        raise


@RULES.rule(generic_associative_scan)
def _scan_in_halves(trace: Trace, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Interpret ``fn(operator, leaves)``, and give each result the size of its leaf along the first dimension.

    The results are joined from halves, so their size is an expression like ``2 * (n // 2) + 1``. What follows would
    have to prove of it again what is known of ``n``.
    """
    results, leaves = trace.interp.call_function(fn, args, kwargs), args[1]
    return [
        trace.calls.call(torch.narrow, (result, 0, 0, leaf.shape[0]), {})
        if _is_other_size(result, leaf)
        else result
        for result, leaf in zip(results, leaves, strict=True)
    ]


def _is_other_size(result: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether the length of ``result`` is a symbol, but not the symbol of ``leaf``."""
    size = result.shape[0] if result.ndim else 0
    return type(size) is torch.SymInt and str(size) != str(leaf.shape[0])


@RULES.rule(
    *(
        getattr(torch.ops.higher_order, name)
        for name in ("cond", "while_loop", "map_impl", "scan", "associative_scan")
    )
)
def _call_with_checks(trace: Trace, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Call an operator itself. A call with other arguments than it takes breaks the graph: eager raises its error."""
    _demand_arguments(type(fn).__call__, (fn, *args), kwargs)
    return trace.torch.call(fn, args, kwargs)


def _demand_arguments(fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> None:
    """Break the graph at a call with arguments that ``fn`` does not take."""
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError as error:
        raise graph_break("operator-function", f"{fn.__qualname__} with wrong arguments ({error})") from error


def _refuse(why: str) -> None:
    """Stand for the error of torch, whose text has values of tensors: the rule breaks the graph."""


@RULES.rule(_refuse)
def _break_at_cond(trace: Trace, _fn: object, args: Args, _kwargs: Kwargs) -> Any:
    """Break the graph at the caller's call of ``torch.cond``, in which torch then raises its own error."""
    stack = trace.interp.user_stack()[:-1]  # without ``_choose``
    raise graph_break("operator-function", f"torch.cond {args[0]}", stack)


def _comes_from_data(_value: object) -> bool:
    """Return whether a value is a number that the graph computes from tensors. The rule knows it."""
    return False


@RULES.rule(_comes_from_data)
def _is_symbol_of_data(_trace: Trace, _fn: object, args: Args, _kwargs: Kwargs) -> bool:
    """Return whether a number has symbols whose values only the graph knows."""
    return isinstance(args[0], SYMBOLIC) and bool(free_unbacked_symbols(args[0]))


def _choose(
    pred: object,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: tuple[Any, ...] | list[Any] = (),
) -> Any:
    """Do what ``torch.cond`` does: branch on a known value, or check the arguments and call the operator.

    The code of ``torch.cond`` itself would load torch's compiler.
    """
    if isinstance(pred, (bool, int, float)) and not _comes_from_data(pred):
        return true_fn(*operands) if pred else false_fn(*operands)
    if not isinstance(pred, (torch.Tensor, bool, int, float)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")  # noqa: TRY004 - torch's
    if isinstance(pred, torch.Tensor) and pred.numel() != 1:
        _refuse(f"with a predicate of {pred.numel()} elements (reduce it to one, for example by `.any()`)")
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("Expect both branches to be callable.")  # noqa: TRY004
    if not isinstance(operands, (tuple, list)):
        _refuse(f"with operands of type {type(operands).__name__} (pass a tuple of tensors)")
    for index, operand in enumerate(operands):
        for leaf in pytree.tree_leaves(operand):
            if not isinstance(leaf, torch.Tensor) and not _comes_from_data(leaf):
                kind = type(leaf).__name__
                _refuse(
                    f"with a value of type {kind} in operand {index} (let the branches read it from an outer variable)"
                )
    return torch.ops.higher_order.cond(pred, true_fn, false_fn, operands)
