"""Arithmetic of sizes by C functions that need plain numbers. The rules compute a symbolic form instead.

If no argument is symbolic, or if the symbolic form is not exact, the C function itself runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental import symbolic_shapes

from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.rules import RULES
from fxstack_capture.trace.state import Args, Kwargs, Trace

OF_NUMBERS = (
    *("sqrt", "cbrt", "isqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "fabs"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
    *("isfinite", "isinf", "isnan", "atanh", "erf", "erfc", "gamma", "lgamma", "degrees", "radians"),
)
"""Functions of module ``math`` without a symbolic form. Their result for a symbol is an additional input of
the graph.
"""


@RULES.rule(*(getattr(math, name) for name in OF_NUMBERS))
def _function_of_number(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Compute a function of a symbolic number. The result is a new symbol, an additional input of the graph."""
    if not kwargs and len(args) == 1 and trace.torch.is_symbolic(args[0]):
        result = trace.torch.function_of(fn, args[0])
        if result is not None:
            return result
    if fn is math.log and len(args) == 2 and any(map(trace.torch.is_symbolic, args)):
        # With a base as second argument, CPython divides two logarithms.
        logarithms = (_function_of_number(trace, fn, (arg,), {}) for arg in args)
        return trace.calls.binary(operator.truediv, *logarithms)
    return run(trace, fn, args, kwargs)


@RULES.rule(math.pow)
def _power(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Compute ``math.pow`` of a positive base as ``**`` of floats, because both call C's ``pow``."""
    numbers = all(type(arg) in (int, float, torch.SymInt, torch.SymFloat) for arg in args)
    if not kwargs and len(args) == 2 and numbers and any(map(trace.torch.is_symbolic, args)):
        base, exponent = map(torch.sym_float, args)
        if trace.calls.truth(trace.calls.binary(operator.gt, base, 0.0)):
            return trace.calls.binary(operator.pow, base, exponent)
    return run(trace, fn, args, kwargs)


@RULES.rule(torch.Size.numel)
def _numel(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return the product of the sizes, which may be symbolic."""
    if kwargs or len(args) != 1 or not isinstance(args[0], torch.Size):
        return run(trace, fn, args, kwargs)
    return math.prod(args[0])


@RULES.rule(operator.index)
def _index(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return a symbolic integer unchanged."""
    if not kwargs and len(args) == 1 and isinstance(args[0], torch.SymInt):
        return args[0]
    return run(trace, fn, args, kwargs)


@RULES.rule(round)
def _round(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Return an integer unchanged, if the call does not ask for digits."""
    if not kwargs and len(args) == 1:
        if isinstance(args[0], torch.SymInt):
            return args[0]
        if isinstance(args[0], torch.SymFloat):
            found = trace.torch.function_of(fn, args[0])
            if found is not None:
                return found
    return run(trace, fn, args, kwargs)


@RULES.rule(divmod)
def _divmod(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Compute ``divmod`` of integers as two operations.

    For a zero divisor, run CPython's function, which raises its own error.
    """
    if not kwargs and len(args) == 2 and any(isinstance(value, torch.SymInt) for value in args):
        whole = all(type(value) in (int, torch.SymInt) for value in args)
        if whole and trace.calls.truth(args[1]):
            return tuple(trace.calls.binary(op, *args) for op in (operator.floordiv, operator.mod))
    return run(trace, fn, args, kwargs)


def _run_on_symbols(_trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Call a function of torch that asks the shape environment about symbols."""
    return fn(*args, **kwargs)


for _name in (
    *("guard_or_false", "guard_or_true", "statically_known_true", "statically_known_false"),
    *("guard_size_oblivious", "guard_scalar", "sym_eq", "sym_and", "sym_or", "has_static_value"),
    *("is_concrete_bool", "is_concrete_int", "has_free_symbols", "has_free_unbacked_symbols"),
):
    if hasattr(symbolic_shapes, _name):
        RULES.add(_run_on_symbols, getattr(symbolic_shapes, _name))
