"""Operators spelled as functions of module ``operator``."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from fxstack_capture.callers import plainly
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()


def _binary_rule(op: Callable[..., Any]) -> None:
    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != 2:
            return plainly(op, args, kwargs)
        return trace.calls.binary(op, *args)

    RULES.add(op, rule)


for _op in (
    *(
        [
            "add",
            "sub",
            "mul",
            "truediv",
            "floordiv",
            "mod",
            "matmul",
            "pow",
            "lshift",
            "rshift",
            "and_",
            "or_",
            "xor",
        ]
    ),
    *(
        [
            "iadd",
            "isub",
            "imul",
            "itruediv",
            "ifloordiv",
            "imod",
            "imatmul",
            "ipow",
            "ilshift",
            "irshift",
            "iand",
            "ior",
            "ixor",
        ]
    ),
    *(["lt", "le", "eq", "ne", "gt", "ge", "getitem", "contains", "concat", "iconcat"]),
):
    _binary_rule(getattr(operator, _op))


def _unary_rule(op: Callable[..., Any]) -> None:
    def rule(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != 1:
            return plainly(op, args, kwargs)
        return trace.calls.unary(op, args[0])

    RULES.add(op, rule)


for _op in ["neg", "pos", "invert", "not_", "truth", "abs"]:
    _unary_rule(getattr(operator, _op))
_unary_rule(abs)
