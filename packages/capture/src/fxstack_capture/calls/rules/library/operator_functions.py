"""Operators spelled as functions of module ``operator``."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from fxstack_capture.callers import plainly
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.operator_protocol import ARITHMETIC, COMPARISONS, IN_PLACE, UNARY

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()


def _binary_rule(op: Callable[..., Any]) -> None:
    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != 2:
            return plainly(op, args, kwargs)
        return trace.calls.binary(op, *args)

    RULES.add(op, rule)


for _op in (
    *(*ARITHMETIC, *IN_PLACE, *COMPARISONS),
    *(operator.getitem, operator.contains, operator.concat, operator.iconcat),
):
    _binary_rule(_op)


def _unary_rule(op: Callable[..., Any]) -> None:
    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != 1:
            return plainly(op, args, kwargs)
        return trace.calls.unary(op, args[0])

    RULES.add(op, rule)


for _fn in (*UNARY, operator.not_, operator.truth):
    _unary_rule(_fn)
