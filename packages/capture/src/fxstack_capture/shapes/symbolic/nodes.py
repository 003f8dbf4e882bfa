"""Symbolic numbers that remember what they computed.

Tracing asks the same few questions about sizes tens of thousands of times (is ``s0*s1 == s1*s0``, is this
layout contiguous, ...), and each costs a sympy evaluation. Within one trace the answer to a question about
given expressions is fixed until an equality between symbols is learned, so it is kept until then.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.sym_node import SymNode

from fxstack_capture.shapes.symbolic.floats import OPERATIONS, demand_divisor
from fxstack_capture.shapes.symbolic.linear_inequalities import RELATIONS, difference

# Limits: several reshapes of symbolic sizes to constant ones, one after the other (x.reshape(16,
# 12).reshape(12, 16)), have sizes that torch's fake kernel gives as quotients of quotients. Capturing six of
# them takes 20 seconds.

_BINARY = (
    "add",
    "sub",
    "mul",
    "mod",
    "floordiv",
    "int_floordiv",
    "eq",
    "ne",
    "gt",
    "ge",
    "lt",
    "le",
    "and_",
    "or_",
    "sym_max",
    "sym_min",
)
_DIVISIONS = {"mod": operator.mod, "floordiv": operator.floordiv, "int_floordiv": operator.floordiv}
_UNARY = ("neg", "sym_float", "floor", "ceil", "trunc", "round", "sym_not", "pos")
_DECISIONS = ("guard_bool", "guard_or_false", "guard_or_true")


class Memo:
    """Answers of one ``ShapeEnv`` while it traces; ``active`` is off before and after.

    A node outlives its trace, and then other modes (proxies) must see every operation on it.
    """

    def __init__(self) -> None:
        self.active = False
        self.version = 0
        self.nodes: dict[Any, SymNode] = {}
        self.decisions: dict[Any, bool] = {}

    def refresh(self, version: int) -> None:
        """Forget what was computed before an equality was learned."""
        if version != self.version:
            self.version = version
            self.nodes.clear()
            self.decisions.clear()


class MemoNode(SymNode):
    """A ``SymNode`` of a ``CaptureShapeEnv``: same results, from memory where possible."""

    def wrap_int(self, num: int) -> SymNode:
        memo = self.shape_env.memo
        if not memo.active:
            return super().wrap_int(num)
        found = memo.nodes.get(num)
        if found is None:
            found = memo.nodes[num] = remembering(super().wrap_int(num))
        return found

    def wrap_float(self, num: float) -> SymNode:
        return remembering(super().wrap_float(num))

    def guard_float(self, file: str, line: int) -> float:
        value = float(super().guard_float(file, line))
        return value or float(self.hint or value)  # sympy has no -0.0

    def wrap_bool(self, num: bool) -> SymNode:
        memo = self.shape_env.memo
        if not memo.active:
            return super().wrap_bool(num)
        found = memo.nodes.get(("bool", num))
        if found is None:
            found = memo.nodes["bool", num] = remembering(super().wrap_bool(num))
        return found


def remembering(node: Any) -> Any:
    """The same node, from now on with a memory, if its environment has one: stages that trace again may bring theirs."""
    if type(node) is SymNode and hasattr(node.shape_env, "memo"):
        node.__class__ = MemoNode
    return node


def _binary(name: str) -> Callable[[Any, Any], Any]:
    return _kept(name, getattr(SymNode, name))


def _kept(name: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``compute``, called once for the same operands as long as the trace lasts."""

    def method(self: Any, other: Any) -> Any:
        env = self.shape_env
        memo = env.memo
        if name in _DIVISIONS and memo.active:
            demand_divisor(_DIVISIONS[name], self, other)
        if not memo.active:
            return compute(self, other)
        memo.refresh(env.replaced)
        key = (name, self._expr, self.pytype, other._expr, other.pytype)
        found = memo.nodes.get(key)
        if found is None:
            found = memo.nodes[key] = remembering(compute(self, other))
        return found

    return method


def _remembered(name: str) -> Callable[..., Any]:
    compute = getattr(SymNode, name)
    return lambda self, *others: remembering(compute(self, *others))


def _comparison(name: str) -> Callable[[Any, Any], Any]:
    """As other methods, but without sympy's thoughts about comparisons that ``lines`` decides."""
    ordinary, relation, compare = _binary(name), RELATIONS[name], getattr(operator, name)

    def make(left: Any, right: Any) -> Any:
        env, hints = left.shape_env, (left.hint, right.hint)
        plain = not (None in hints or env._translation_validation_enabled or get_proxy_mode())
        line = difference(left.expr, right.expr) if plain else None
        if line is None or line[0] is None:
            return ordinary(left, right)
        expr = relation(left.expr, right.expr, evaluate=False)
        return MemoNode(expr, env, bool, compare(*hints))

    return _kept(name, make)


def _arithmetic(name: str) -> Callable[..., Any]:
    """As other methods, but exact where floats are involved; see ``floats``."""
    ordinary = _binary(name) if name in _BINARY else _remembered(name)

    def method(self: Any, *other: Any) -> Any:
        exact = self.shape_env.floats.apply(name, (self, *other))
        return ordinary(self, *other) if exact is None else exact

    return method


def _decision(name: str) -> Callable[..., bool]:
    decide = getattr(SymNode, name)

    def method(self: Any, file: str, line: int) -> bool:
        env = self.shape_env
        memo: Memo = env.memo
        if not memo.active or not self.has_hint():
            return bool(decide(self, file, line))
        memo.refresh(env.replaced)
        key = (name, self._expr)
        found = memo.decisions.get(key)
        if found is None:
            memo.decisions[key] = found = bool(decide(self, file, line))
        return found

    return method


for _name in filter(partial(hasattr, SymNode), _BINARY):
    setattr(MemoNode, _name, _comparison(_name) if _name in RELATIONS else _binary(_name))
for _name in _UNARY:
    if hasattr(SymNode, _name):
        setattr(MemoNode, _name, _remembered(_name))
for _name in OPERATIONS:
    setattr(MemoNode, _name, _arithmetic(_name))
for _name in _DECISIONS:
    if hasattr(SymNode, _name):
        setattr(MemoNode, _name, _decision(_name))
