"""Values of a kernel's integers and addresses for many programs at once, and the operations of Triton's text on them.

A value is an array whose first dimension is the batch (or 1) and whose others are those of the tile; a ``Pointer``; or
``UNKNOWN``: floating point, and what comes from memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from cuda_ttir import Operation


@dataclass(frozen=True)
class Unknown:
    """A value that is not computed."""


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Pointer:
    """Addresses: that of a buffer, or of one for each member of the batch, and offsets in bytes."""

    base: int | np.ndarray | Unknown
    offset: np.ndarray | Unknown


Value = "np.ndarray | Pointer | Unknown"


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def gathered(value: Any, origin: np.ndarray) -> Any:
    if isinstance(value, Pointer):
        return Pointer(gathered(value.base, origin), gathered(value.offset, origin))
    return value if not isinstance(value, np.ndarray) or value.shape[0] == 1 else value[origin]


def merged(count: int, branches: list[tuple[np.ndarray, Any]]) -> Any:
    """One value of ``count`` members from those of branches, each with the members that took it."""
    if any(isinstance(value, Unknown) for _, value in branches):
        return UNKNOWN
    if any(isinstance(value, Pointer) for _, value in branches):
        bases, offsets = ([(where, getattr(v, name)) for where, v in branches] for name in ("base", "offset"))
        base = merged(count, bases)
        return UNKNOWN if isinstance(base, Unknown) else Pointer(base, merged(count, offsets))
    values = [(where, np.asarray(value)) for where, value in branches]
    whole = np.zeros((count, *np.broadcast_shapes(*(v.shape[1:] for _, v in values))), values[0][1].dtype)
    for where, value in values:
        whole[where] = value
    return whole


def difference(after: Any, before: Any) -> Any:
    if isinstance(after, Pointer) and isinstance(before, Pointer):
        return difference(after.offset, before.offset) if _same(after.base, before.base) else UNKNOWN
    if isinstance(after, np.ndarray) and isinstance(before, np.ndarray) and before.dtype != bool:
        return after - before
    return UNKNOWN


def at_turn(first: Any, slope: Any, turn: np.ndarray) -> Any:
    """A carried value after ``turn`` turns."""
    if isinstance(slope, Unknown):
        return Pointer(first.base, UNKNOWN) if isinstance(first, Pointer) else UNKNOWN
    if isinstance(first, Pointer):
        return Pointer(first.base, at_turn(first.offset, slope, turn))
    rank = max(first.ndim, slope.ndim)
    return _ranked(first, rank) + _ranked(slope, rank) * turn.reshape(-1, *[1] * (rank - 1))


def _ranked(value: np.ndarray, rank: int) -> np.ndarray:
    return value.reshape(*value.shape, *[1] * (rank - value.ndim))


def compute(op: Operation, operands: list[Any]) -> Any:
    """The result of an operation without regions; unknown if there is no rule for it."""
    rule = _SHAPES.get(op.name)
    if rule is not None:
        return rule(op, operands)
    if op.name in {"arith.andi", "arith.ori"} and op.types[0].element == "i1":
        return _logical(op.name, *operands)
    if op.name == "arith.select":
        return _selected(*operands)
    arithmetic = _ARITHMETIC.get(op.name)
    if arithmetic is None or any(not isinstance(v, np.ndarray) for v in operands):
        return UNKNOWN
    return arithmetic(*operands)


def _constant(op: Operation, _operands: list[Any]) -> Any:
    kind = op.types[0]
    found = re.search(r"constant (?:dense<)?(-?\d+|true|false)>?(?: : |$)", op.text)
    if (not kind.integer and kind.element != "index") or found is None:
        return UNKNOWN
    text = found.group(1)
    value = int(text) if text[-1].isdigit() else text == "true"
    return np.full((1,) * (1 + len(kind.shape)), value, bool if kind.element == "i1" else np.int64)


def _range(op: Operation, _operands: list[Any]) -> Any:
    ends = [int(re.search(rf"{word} = (-?\d+)", op.text).group(1)) for word in ("start", "end")]
    return np.arange(*ends, dtype=np.int64)[None]


def _on_values(
    change: Callable[[Operation, np.ndarray], np.ndarray],
) -> Callable[[Operation, list[Any]], Any]:
    """A rule that changes the shape of its only operand, or of the operand's offsets."""

    def rule(op: Operation, operands: list[Any]) -> Any:
        value = operands[0]
        if isinstance(value, Pointer):
            return Pointer(value.base, rule(op, [value.offset]))
        return value if isinstance(value, Unknown) else change(op, value)

    return rule


def _splat(op: Operation, value: np.ndarray) -> np.ndarray:
    return value.reshape(len(value), *[1] * len(op.types[0].shape))


def _expand(op: Operation, value: np.ndarray) -> np.ndarray:
    return np.expand_dims(value, 1 + int(re.search(r"axis = (\d+)", op.text).group(1)))


def _transpose(op: Operation, value: np.ndarray) -> np.ndarray:
    order = re.search(r"order = array<i32: ([\d, ]+)>", op.text).group(1)
    return value.transpose(0, *(1 + int(n) for n in order.split(",")))


def _reshape(op: Operation, value: np.ndarray) -> np.ndarray:
    whole = np.broadcast_to(value, (len(value), *_operand_shape(op)))
    return whole.reshape(len(value), *op.types[0].shape)


def _operand_shape(op: Operation) -> tuple[int, ...]:
    found = re.search(r" : tensor<((?:\d+x)+)", op.text)
    return tuple(int(n) for n in found.group(1).split("x")[:-1]) if found else ()


def _add_pointer(op: Operation, operands: list[Any]) -> Any:
    pointer, offset = operands
    if not isinstance(pointer, Pointer):
        return UNKNOWN
    if isinstance(offset, Unknown) or isinstance(pointer.offset, Unknown):
        return Pointer(pointer.base, UNKNOWN)
    return Pointer(pointer.base, pointer.offset + offset * op.types[0].bytes)


def _logical(name: str, a: Any, b: Any) -> Any:
    """A mask that is not known may hold everywhere."""
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        other = b if isinstance(a, Unknown) else a
        return other if name == "arith.andi" else UNKNOWN
    return a & b if name == "arith.andi" else a | b


def _selected(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(a, Pointer) and isinstance(b, Pointer):
        base = a.base if _same(a.base, b.base) else _of_each(condition, a.base, b.base)
        return (
            UNKNOWN if isinstance(base, Unknown) else Pointer(base, _selected(condition, a.offset, b.offset))
        )
    known = (isinstance(v, np.ndarray) for v in (condition, a, b))
    return np.where(condition, a, b) if all(known) else UNKNOWN


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(np.array_equal(a, b))


def _of_each(condition: Any, a: Any, b: Any) -> Any:
    """The buffer that each member of the batch chooses; unknown where that is not one for a whole tile."""
    if not isinstance(condition, np.ndarray) or condition.ndim > 1:
        return UNKNOWN
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return UNKNOWN
    return np.where(condition, a, b)


def _compare(op: Operation, operands: list[Any]) -> Any:
    if any(not isinstance(v, np.ndarray) for v in operands):
        return UNKNOWN
    word = re.search(r"cmpi (\w+),", op.text).group(1)
    return _COMPARISONS[word.lstrip("us")](*operands)


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A quotient that is rounded towards zero, as in C; of zero where the divisor is zero."""
    safe = np.where(b == 0, 1, b)
    return np.sign(a) * np.sign(safe) * (abs(a) // abs(safe))


_COMPARISONS = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_SHAPES: dict[str, Callable[[Operation, list[Any]], Any]] = {
    "arith.constant": _constant,
    "tt.make_range": _range,
    "tt.splat": _on_values(_splat),
    "tt.expand_dims": _on_values(_expand),
    "tt.broadcast": _on_values(lambda op, v: np.broadcast_to(v, (len(v), *op.types[0].shape))),
    "tt.trans": _on_values(_transpose),
    "tt.reshape": _on_values(_reshape),
    "tt.addptr": _add_pointer,
    "arith.cmpi": _compare,
    **{name: _on_values(lambda _op, v: v) for name in ("arith.trunci", "arith.index_cast", "tt.unsplat")},
    "arith.extsi": _on_values(lambda _op, v: v.astype(np.int64)),
    "arith.extui": _on_values(lambda _op, v: v.astype(np.int64)),
}
_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.divsi": _truncated,
    "arith.divui": _truncated,
    "arith.remsi": lambda a, b: a - _truncated(a, b) * b,
    "arith.remui": lambda a, b: a - _truncated(a, b) * b,
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.minui": np.minimum,
    "arith.maxui": np.maximum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": lambda a, b: a << np.clip(b, 0, 62),
    "arith.shrsi": lambda a, b: a >> np.clip(b, 0, 62),
}
