"""Exact comparisons of symbolic integers with floats, as in Python.

For ``m > 2.5``, torch converts the integer to a float, ``ToFloat(m)``. Above 2**53 this may change the value,
while Python compares the exact values. Therefore this module compares the integer itself. A ``float(m)`` in
the program gives the same expression; ``as_float`` makes sure that this conversion is exact.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch.fx.experimental.sym_node import SymNode

from fxstack_capture.shapes.symbolic.linear_inequalities import RELATIONS
from fxstack_capture.torch_compat import ToFloat

# Limits: C code (list.count, sorted) that compares a dynamic float with a constant integer above 2**53 gets
# the rounded constant. Operators get the exact constant (calls/operators/protocol.py).

EXACT = 2**53
"""The largest integer up to which all integers are exact floats."""
_MIRRORED: Mapping[str, str] = {"gt": "lt", "ge": "le", "lt": "gt", "le": "ge", "eq": "eq", "ne": "ne"}
"""Maps a relation to the relation with exchanged operands."""
_ROUNDING: Mapping[str, Callable[[float], int]] = {
    "gt": math.floor,
    "le": math.floor,
    "ge": math.ceil,
    "lt": math.ceil,
}
"""The rounding of a constant, by relation: for integers, ``m > 2.5`` is ``m > 2``, and ``m >= 2.5`` is ``m >=
3``.
"""


def compare(name: str, left: SymNode, right: SymNode) -> SymNode | None:
    """Return the node of comparison ``name`` (such as ``gt``) if one side is an integer converted to a float.

    Otherwise, or if a value is not known before the graph runs, return None. ``MemoNode`` then compares as
    torch does.
    """
    left_integer, right_integer = _integer(left), _integer(right)
    if left_integer is None and right_integer is None:
        return None
    if left_integer is not None and right_integer is not None:
        return _call(name, left_integer, right_integer)
    if left_integer is None:
        assert right_integer is not None
        return _with_float(_MIRRORED[name], right_integer, right, left)
    return _with_float(name, left_integer, left, right)


def as_float(number: Any) -> Any:
    """Return ``float(number)``, for a call of ``float`` in the program.

    If the conversion of a symbolic integer is exact now, guard that it is exact.
    """
    if type(number) is not torch.SymInt or number.node.hint is None or _guarded_exact(number.node):
        return torch.sym_float(number)
    return number * 1.0  # a new float (``floats``), which later comparisons do not treat as the integer


def _integer(node: SymNode) -> SymNode | None:
    """Return the integer that ``node``, a conversion ``ToFloat``, converts.

    Return None for any other node, and for an integer of unknown value.
    """
    if not isinstance(node.expr, ToFloat) or node.hint is None:
        return None
    env, expr = node.shape_env, node.expr.args[0]
    hint = expr.xreplace(env.backed_var_to_val)
    return type(node)(expr, env, int, int(hint)) if hint.is_Integer else None


def _with_float(name: str, whole: SymNode, converted: SymNode, other: SymNode) -> SymNode | None:
    """Return the node that compares the integer ``whole`` with the float ``other``.

    ``converted`` is ``whole`` as a float. Return None if the value of ``other`` is unknown.
    """
    if other.hint is None:
        return None
    compared = getattr(operator, name)
    if isinstance(other.expr, sympy.Basic) and other.expr.is_number:
        return _with_constant(name, whole, other.hint)
    if _guarded_exact(whole):
        relation = RELATIONS[name](converted.expr, other.expr)
        return type(whole)(relation, whole.shape_env, bool, compared(whole.hint, other.hint))
    number, constant = whole.guard_int("", 0), other.guard_float("", 0)
    return _constant(whole, truth=compared(number, constant))


def _with_constant(name: str, whole: SymNode, number: float) -> SymNode:
    """Return the node that compares ``whole`` with a constant float.

    The constant is rounded to the integer that gives the same answer.
    """
    if type(number) is int:  # torch compares a divisor with the integer 0
        return _call(name, whole, whole.wrap_int(number))
    if not math.isfinite(number) or (name in ("eq", "ne") and not number.is_integer()):
        return _constant(whole, truth=getattr(operator, name)(0, number))
    return _call(name, whole, whole.wrap_int(_ROUNDING.get(name, int)(number)))


def _constant(like: SymNode, *, truth: bool) -> SymNode:
    """Return a node with the constant truth value ``truth``, in the environment of ``like``."""
    zero = like.wrap_int(0)
    return _call("eq" if truth else "ne", zero, zero)


def _guarded_exact(whole: SymNode) -> bool:
    """Whether the integer ``whole`` is exact as a float. If so, guard that it stays exact."""
    if not -EXACT <= whole.hint <= EXACT:
        return False
    for name, bound in (("le", EXACT), ("ge", -EXACT)):
        _call(name, whole, whole.wrap_int(bound)).guard_bool("", 0)
    return True


def _call(name: str, left: SymNode, right: SymNode) -> Any:
    """Return the comparison of two integer nodes."""
    return getattr(left, name)(right)
