"""Expressions and values of the loop IR as C text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fxstack_inductor.codegen import c_ops
from fxstack_inductor.ir.expr import Expr, Extremum, FloorDiv, Mod, Var, VarKind
from fxstack_inductor.ir.kernel import Check, Compute, Constant, IndexValue, Kernel, Load, Reduce

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fxstack_inductor.ir.expr import Atom
    from fxstack_inductor.ir.kernel import Store


def index_text(expr: Expr) -> str:
    """An index expression in 64-bit C."""
    if not expr.terms:
        return "0"
    return " + ".join(_term(monomial, c) for monomial, c in expr.terms)


def _term(monomial: tuple[Atom, ...], coefficient: int) -> str:
    factors = [_atom(atom) for atom in monomial]
    if coefficient != 1 or not factors:
        large = not -(2**31) < coefficient < 2**31
        factors.append(f"INT64_C({coefficient})" if large else str(coefficient))
    return "*".join(factors)


def _atom(atom: Atom) -> str:
    match atom:
        case Var(name):
            return name
        case FloorDiv(num, den):
            return _quotient("/", "floordiv_int64_t", num, den)
        case Mod(num, den):
            return _quotient("%", "remainder_int64_t", num, den)
        case Extremum(name, left, right):
            return f"{name}_int64_t({index_text(left)}, {index_text(right)})"


def _quotient(symbol: str, helper: str, num: Expr, den: Expr) -> str:
    low = num.bounds()[0]
    if low is not None and low >= 0:
        return f"(({index_text(num)}) {symbol} ({index_text(den)}))"
    return f"{helper}({index_text(num)}, {index_text(den)})"


class Names:
    """How the parts of one kernel are called in C."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.buffers = {ref.name: f"a{k}" for k, ref in enumerate(kernel.buffers)}
        self.dtypes: Mapping[str, torch.dtype] = {ref.name: ref.dtype for ref in kernel.buffers}

    def element(self, buffer: str, index: Expr) -> str:
        return f"{self.buffers[buffer]}[{index_text(index)}]"

    def store(self, store: Store) -> str:
        target = self.element(store.buffer, store.index)
        return f"{target} = {c_ops.store(self.operand(store.value), self.dtypes[store.buffer])};"

    def operand(self, position: int) -> str:
        """A value where it is used: constants stand for themselves."""
        value = self.kernel.values[position]
        return (
            c_ops.literal(value.text, value.dtype)
            if isinstance(value, Constant)
            else f"v{position}"
        )

    def declare(self, position: int) -> str:
        """``const T v12 = ...;``; not for reductions."""
        value = self.kernel.values[position]
        return f"const {c_ops.REGISTER[value.dtype]} v{position} = {self.expression(position)};"

    def expression(self, position: int) -> str:
        value = self.kernel.values[position]
        match value:
            case Constant(text, dtype):
                return c_ops.literal(text, dtype)
            case IndexValue(expr, dtype):
                return c_ops.cast(f"(int64_t)({index_text(expr)})", torch.int64, dtype)
            case Load(buffer, index, _, mask, other):
                element = c_ops.load(self.element(buffer, index), self.dtypes[buffer])
                return element if mask is None else self._masked(mask, element, other)
            case Check(arg, size, _, mask, wraps):
                valid = "true" if mask is None else self.operand(mask)
                name = "wrap_index" if wraps else "check_index"
                return f"{name}({self.operand(arg)}, {index_text(size)}, {valid}, error)"
            case Compute(op, args, dtype):
                kinds = [self.kernel.values[k].dtype for k in args]
                return c_ops.emit(op, [self.operand(k) for k in args], dtype, kinds)
            case Reduce():
                raise AssertionError("a reduction has no expression")

    def _masked(self, mask: int, element: str, other: int | None) -> str:
        default = "0" if other is None else self.operand(other)
        return f"({self.operand(mask)} ? {element} : {default})"


def parameters(kernel: Kernel) -> list[str]:
    """The C parameters: buffers, sizes, the error flag of checked kernels, the number of threads."""
    written = kernel.written
    params = [
        f"{'' if ref.name in written else 'const '}{c_ops.STORAGE[ref.dtype]}* restrict a{k}"
        for k, ref in enumerate(kernel.buffers)
    ]
    params += [f"const int64_t {name}" for name in kernel.sizes]
    if kernel.checked:
        params.append("int32_t* error")
    return [*params, "const int64_t threads"]


__all__ = ["Names", "VarKind", "index_text", "parameters"]
