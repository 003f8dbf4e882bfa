"""Symbolic numbers that cache their results.

Tracing asks the same few questions about sizes tens of thousands of times, such as: is ``s0*s1 == s1*s0``, or
is this layout contiguous. Each question would cost a sympy evaluation. Within one trace, the answer for given
expressions changes only when ShapeEnv learns that symbols are equal. The cache keeps the answer until then.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.sym_node import SymNode, magic_methods
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from fxstack_capture.shapes.symbolic import exact_comparisons
from fxstack_capture.shapes.symbolic.floats import OPERATIONS, demand_divisor, exponent_of_power
from fxstack_capture.shapes.symbolic.linear_inequalities import RELATIONS, difference
from fxstack_capture.torch_compat import ToFloat

# Limits: some chains of reshapes are slow. Torch's fake kernel represents the sizes of x.reshape(16,
# 12).reshape(12, 16), with a symbolic x, as quotients of quotients. Capturing six such reshapes takes 20
# seconds.

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
"""Operations of two operands whose results are cached."""
_DIVISIONS = {"mod": operator.mod, "floordiv": operator.floordiv, "int_floordiv": operator.floordiv}
"""Operations that raise for a zero divisor."""
_OTHERS = tuple(name for name in magic_methods if name not in (*_BINARY, "sym_float"))
"""All other operations. Their results are not cached, but they must be MemoNodes so that later operations are
exact.
"""

_DECISIONS = ("guard_bool", "guard_or_false", "guard_or_true")
"""Methods that return a truth value as a Python bool."""


class Memo:
    """The cached answers of one ``CaptureShapeEnv`` while it traces.

    ``active`` is False before and after the trace. A node may outlive its trace. Other modes (proxies) must
    then see every operation on the node.
    """

    def __init__(self) -> None:
        self.active = False
        self.version = 0
        """The number of ShapeEnv's replacements when the answers were computed."""
        self.nodes: dict[Any, SymNode] = {}
        """Maps the name and operands of an operation to its result."""
        self.decisions: dict[Any, bool] = {}
        """Maps the kind of question and its expression to the truth value."""

    def refresh(self, version: int) -> None:
        """Discard all results if ShapeEnv has learned an equality since they were computed.

        ``version`` is ShapeEnv's current number of replacements.
        """
        if version != self.version:
            self.version = version
            self.nodes.clear()
            self.decisions.clear()


class MemoNode(SymNode):
    """A ``SymNode`` of a ``CaptureShapeEnv``. It gives the same results, and caches them if possible."""

    def wrap_int(self, num: int) -> SymNode:
        """Return the node of an int that is used in one operation with this node."""
        memo = self.shape_env.memo
        if not memo.active:
            return super().wrap_int(num)
        node = memo.nodes.get(num)
        if node is None:
            node = memo.nodes[num] = remembering(super().wrap_int(num))
        return node

    def wrap_float(self, num: float) -> SymNode:
        """Return the node of a float that is used in one operation with this node."""
        memo = self.shape_env.memo
        if not memo.active or not num or math.isnan(num):  # 0.0 equals -0.0
            return remembering(super().wrap_float(num))
        node = memo.nodes.get(("float", num))
        if node is None:
            node = memo.nodes["float", num] = remembering(super().wrap_float(num))
        return node

    def sym_float(self) -> SymNode:
        """Return the number converted to a float."""
        if self.shape_env.memo.active and self.expr.is_Integer:  # sympy would round a large integer
            expr = ToFloat(self.expr, evaluate=False)
            return type(self)(expr, self.shape_env, float, float(self.hint))
        return remembering(super().sym_float())

    def guard_float(self, file: str, line: int) -> float:
        """Return the current value and guard it. torch's parameters ``file`` and ``line`` are not used."""
        value = float(super().guard_float(file, line))
        return value or float(self.hint or value)  # sympy has no -0.0, but the hint has the sign

    def expect_true(self, file: str, line: int) -> bool:
        """Return whether a condition holds. torch calls this method for ``torch._check``.

        If the graph computes the condition, the graph asserts it.
        """
        exponent = exponent_of_power() if self.hint is None else None
        if exponent is not None and exponent.is_integer():
            return True
        if exponent is not None and not self.shape_env.asserts_signs:
            raise GuardOnDataDependentSymNode(self.expr, "a power of a negative number may be complex")
        return bool(super().expect_true(file, line))

    def wrap_bool(self, num: bool) -> SymNode:
        """Return the node of a bool that is used in one operation with this node."""
        if self.pytype is not bool:  # Python's bools are integers, but sympy's are not: Eq(1, true) is false.
            return self.wrap_int(int(num))
        memo = self.shape_env.memo
        if not memo.active:
            return super().wrap_bool(num)
        node = memo.nodes.get(("bool", num))
        if node is None:
            node = memo.nodes["bool", num] = remembering(super().wrap_bool(num))
        return node


def remembering(node: Any) -> Any:
    """Make ``node`` a ``MemoNode`` if its environment has a memo. Return ``node``.

    Later stages that trace again may use environments without a memo.
    """
    if type(node) is SymNode and hasattr(node.shape_env, "memo"):
        # torch makes nodes of the class SymNode in many places, without a hook for another class.
        node.__class__ = MemoNode
    return node


def _binary(name: str) -> Callable[[Any, Any], Any]:
    """Return SymNode's binary operation ``name`` as a cached method of ``MemoNode``."""
    return _make_cached(name, getattr(SymNode, name))


def _make_cached(name: str, compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return ``compute`` as a method that runs only once for the same operands during the trace."""

    def method(self: Any, other: Any) -> Any:
        """Return the cached node, or compute it."""
        env = self.shape_env
        memo = env.memo
        if name in _DIVISIONS and memo.active:
            demand_divisor(_DIVISIONS[name], self, other)
        if not memo.active:
            return compute(self, other)
        memo.refresh(env.replaced)
        key = (name, self._expr, self.pytype, other._expr, other.pytype)
        node = memo.nodes.get(key)
        if node is None:
            node = memo.nodes[key] = remembering(compute(self, other))
        return node

    return method


def _make_uncached(name: str) -> Callable[..., Any]:
    """Return SymNode's operation ``name`` as an uncached method whose result is a ``MemoNode``."""
    compute = getattr(SymNode, name)
    return lambda self, *others: remembering(compute(self, *others))


def _comparison(name: str) -> Callable[[Any, Any], Any]:
    """Return a comparison method that uses ``linear_inequalities`` in place of sympy's evaluation."""
    ordinary, relation, compare = _binary(name), RELATIONS[name], getattr(operator, name)

    def make(left: Any, right: Any) -> Any:
        """Return the node of the comparison. sympy is not used if the sides differ by a linear expression of
        one symbol.
        """
        env, hints = left.shape_env, (left.hint, right.hint)
        proxies = get_proxy_mode() is not None
        exact = None if proxies or left.pytype is int else exact_comparisons.compare(name, left, right)
        if exact is not None:
            return exact
        plain = not (None in hints or env._translation_validation_enabled or proxies)
        line = difference(left.expr, right.expr) if plain else None
        if line is None or line[0] is None:
            return ordinary(left, right)
        expr = relation(left.expr, right.expr, evaluate=False)
        return MemoNode(expr, env, bool, compare(*hints))

    return _make_cached(name, make)


def _arithmetic(name: str) -> Callable[..., Any]:
    """Return the arithmetic method ``name``, which is exact for floats (see ``floats``)."""
    ordinary = _binary(name) if name in _BINARY else _make_uncached(name)

    def method(self: Any, *other: Any) -> Any:
        """Return the node of the result."""
        env, nodes = self.shape_env, (self, *other)
        memo: Memo = env.memo
        if not memo.active or get_proxy_mode() is not None:
            exact = env.floats.apply(name, nodes)
            return ordinary(self, *other) if exact is None else exact
        memo.refresh(env.replaced)
        key = ("exact", name, *map(_operand_key, nodes))
        exact = memo.nodes.get(key)
        if exact is None:
            exact = env.floats.apply(name, nodes)
            if exact is None:
                return ordinary(self, *other)
            memo.nodes[key] = exact
        return exact

    return method


def _operand_key(node: Any) -> tuple[type, object]:
    """Return what equal operands have in common. A number is described by its text: 0.0 equals -0.0."""
    expr, hint = node._expr, node.hint
    return node.pytype, repr(hint) if expr.is_number and hint is not None else expr


def _decision(name: str) -> Callable[..., bool]:
    """Return SymNode's method ``name`` as a method of ``MemoNode``. The method asks for a truth value and
    guards it.

    The answer for an expression is cached.
    """
    decide = getattr(SymNode, name)

    def method(self: Any, file: str, line: int) -> bool:
        """Return the cached answer, or decide."""
        env = self.shape_env
        memo: Memo = env.memo
        if not memo.active or not self.has_hint():
            return bool(decide(self, file, line))
        memo.refresh(env.replaced)
        key = (name, self._expr)
        answer = memo.decisions.get(key)
        if answer is None:
            memo.decisions[key] = answer = bool(decide(self, file, line))
        return answer

    return method


for _name in filter(partial(hasattr, SymNode), _BINARY):
    setattr(MemoNode, _name, _comparison(_name) if _name in RELATIONS else _binary(_name))
for _name in _OTHERS:
    if hasattr(SymNode, _name):
        setattr(MemoNode, _name, _make_uncached(_name))
for _name in OPERATIONS:
    setattr(MemoNode, _name, _arithmetic(_name))
for _name in _DECISIONS:
    if hasattr(SymNode, _name):
        setattr(MemoNode, _name, _decision(_name))
