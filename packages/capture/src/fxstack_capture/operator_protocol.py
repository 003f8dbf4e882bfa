"""Python's operators: their functions, methods and symbols, and the order in which CPython calls the methods.

Only ``candidates`` states this order (``Objects/abstract.c`` and ``Objects/object.c`` of CPython). All tables
of operators in this package are made from the tables here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

Function = Callable[..., Any]

SYMBOLS: Mapping[str, str] = MappingProxyType(
    {
        "add": "+",
        "and": "&",
        "floordiv": "//",
        "lshift": "<<",
        "matmul": "@",
        "mul": "*",
        "mod": "%",
        "or": "|",
        "pow": "** or pow()",
        "rshift": ">>",
        "sub": "-",
        "truediv": "/",
        "xor": "^",
        "lt": "<",
        "le": "<=",
        "eq": "==",
        "ne": "!=",
        "gt": ">",
        "ge": ">=",
    }
)
"""Maps the stem of a method's name to the symbol of the binary operator in error texts.

A stem is the name without underscores, such as ``add``. The order is that of the numbers in bytecode
arguments: ``NB_ADD`` and so on, then ``Py_LT`` and so on.
"""

_SWAPPED = MappingProxyType({"lt": "gt", "le": "ge", "eq": "eq", "ne": "ne", "gt": "lt", "ge": "le"})
"""Maps a comparison to the comparison with exchanged operands: ``a < b`` is ``b > a``."""

COMPARISON_NAMES = tuple(_SWAPPED)
"""The stems of the six comparisons."""
ARITHMETIC_NAMES = tuple(name for name in SYMBOLS if name not in _SWAPPED)
"""The stems of all other binary operators."""


def function_of(name: str) -> Function:
    """Return the function of module ``operator`` for the stem of a method's name, for example ``and`` or
    ``iadd``.
    """
    function: Function = getattr(operator, f"__{name}__")
    return function


ARITHMETIC: tuple[Function, ...] = tuple(map(function_of, ARITHMETIC_NAMES))
"""The functions of module ``operator`` for ``ARITHMETIC_NAMES``."""
IN_PLACE: tuple[Function, ...] = tuple(function_of(f"i{name}") for name in ARITHMETIC_NAMES)
"""The functions of augmented assignments (``iadd``), in the order of ``ARITHMETIC``."""
COMPARISONS: tuple[Function, ...] = tuple(map(function_of, COMPARISON_NAMES))
"""The functions of the comparisons, in the order of ``COMPARISON_NAMES``."""

OUT_OF_PLACE: Mapping[Function, Function] = MappingProxyType(dict(zip(IN_PLACE, ARITHMETIC, strict=True)))
"""Maps the operator of an augmented assignment to the plain operator (``iadd`` to ``add``)."""

UNARY: Mapping[Function, str] = MappingProxyType(
    {**{function_of(name): f"__{name}__" for name in ("neg", "pos", "invert", "abs")}, abs: "__abs__"}
)
"""Maps an operator of one operand to the name of its method."""

_STEMS: Mapping[Function, str] = MappingProxyType(
    {
        **dict(zip((*ARITHMETIC, *COMPARISONS), SYMBOLS, strict=True)),
        **dict(zip(IN_PLACE, ARITHMETIC_NAMES, strict=True)),
    }
)
"""Maps a function to the stem of its method's name. An in-place operator has the stem of the plain operator."""


def is_binary(op: object) -> bool:
    """Whether ``candidates`` supports an operator: arithmetic, in-place arithmetic, and comparisons."""
    return op in _STEMS


def candidates(
    op: Function, kinds: tuple[type, type], lookup: Callable[[type, str], object]
) -> Iterator[tuple[int, str]]:
    """Yield the methods that CPython tries for ``op`` on operands of two classes, in order.

    Each item has the index of the operand (0: left, 1: right) and the name of the method, for example ``(1,
    "__radd__")``. The caller stops at the first method that does not return NotImplemented. ``lookup`` finds
    a method of a class without calling descriptors.
    """
    stem = _STEMS[op]
    compares = stem in _SWAPPED
    name, reflected = f"__{stem}__", f"__{_SWAPPED[stem] if compares else 'r' + stem}__"
    left, right = kinds
    if op in OUT_OF_PLACE:
        yield 0, f"__i{stem}__"
    if left is right:
        yield 0, name
        if compares:
            yield 1, reflected
    elif issubclass(right, left) and (compares or lookup(right, reflected) is not lookup(left, reflected)):
        yield 1, reflected
        yield 0, name
    else:
        yield 0, name
        yield 1, reflected


def by_identity(op: object, left: object, right: object) -> bool | None:
    """Return the result of ``==`` or ``!=`` after all methods have returned NotImplemented: it compares
    identities.

    Return None for any other operator. Such an operator raises TypeError then.
    """
    return (left is right) is (op is operator.eq) if op in (operator.eq, operator.ne) else None


def type_error(op: Function, left: str, right: str) -> str:
    """Return the text of the TypeError for operands that no method accepts.

    ``left`` and ``right`` are the names of the operands' classes.
    """
    symbol = SYMBOLS[_STEMS[op]]
    if _STEMS[op] in _SWAPPED:
        return f"{symbol!r} not supported between instances of {left!r} and {right!r}"
    if op in OUT_OF_PLACE:
        symbol = f"{symbol.removesuffix(' or pow()')}="
    return f"unsupported operand type(s) for {symbol}: {left!r} and {right!r}"


def define_methods(cls: type, functions: Mapping[str, Function], compute: Function) -> None:
    """Give ``cls`` one special method for each stem in ``functions``. The classes of arrays and scalars get
    operators by this.

    Each method returns ``compute(self, function, operands)``. ``operands`` are the other arguments of the
    method.
    """
    for name, function in functions.items():
        setattr(cls, f"__{name}__", _method(function, compute))


def _method(function: Function, compute: Function) -> Function:
    """Return the special method that computes ``function`` of ``self`` and the other arguments."""

    def method(self: object, *others: object) -> Any:
        return compute(self, function, (self, *others))

    return method
