"""Operators as functions of module ``operator``."""

from __future__ import annotations

import operator

from fxstack_capture.calls.table import RuleTable
from fxstack_capture.operator_protocol import ARITHMETIC, COMPARISONS, IN_PLACE, UNARY

RULES: RuleTable = RuleTable()


for _op in (
    *(*ARITHMETIC, *IN_PLACE, *COMPARISONS),
    *(operator.getitem, operator.contains, operator.concat, operator.iconcat),
):
    RULES.positional(_op, 2)(lambda trace, left, right, op=_op: trace.calls.binary(op, left, right))

for _fn in (*UNARY, operator.not_, operator.truth):
    RULES.positional(_fn, 1)(lambda trace, value, op=_fn: trace.calls.unary(op, value))
