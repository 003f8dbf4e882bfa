"""Numbers that stand for operators in bytecode arguments; the same in 3.11 to 3.14."""

from __future__ import annotations

import operator
from types import MappingProxyType

from fxstack_capture.interpreter.handlers import operators
from fxstack_capture.versions.lowering import fixed

BINARY = (
    operator.add,
    operator.and_,
    operator.floordiv,
    operator.lshift,
    operator.matmul,
    operator.mul,
    operator.mod,
    operator.or_,
    operator.pow,
    operator.rshift,
    operator.sub,
    operator.truediv,
    operator.xor,
    operator.iadd,
    operator.iand,
    operator.ifloordiv,
    operator.ilshift,
    operator.imatmul,
    operator.imul,
    operator.imod,
    operator.ior,
    operator.ipow,
    operator.irshift,
    operator.isub,
    operator.itruediv,
    operator.ixor,
)
"""``NB_ADD`` and so on, in CPython's order (``opcode.h``)."""

COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)
"""``Py_LT`` to ``Py_GE``."""

BINARY_OPS = MappingProxyType({number: fixed(operators.binary_op, op) for number, op in enumerate(BINARY)})
