"""Pairs of a NumPy function, method or operator and its counterpart on ``torch._numpy`` arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fxstack_capture.operator_protocol import ARITHMETIC_NAMES, COMPARISON_NAMES, function_of
from fxstack_capture.torch_compat import torch_numpy as tnp
from fxstack_capture.trace.numpy_types import TORCH_OF

_NAMESPACES: tuple[tuple[Any, Any], ...] = ((np, tnp), (np.linalg, tnp.linalg), (np.fft, tnp.fft))
"""NumPy's modules with their counterparts."""

_COMPUTE_OTHERWISE = frozenset(
    {
        *("angle", "argsort", "cbrt", "choose", "fix", "heaviside", "modf", "put"),
        *("histogram", "histogram2d", "histogramdd", "unique", "searchsorted", "isscalar"),
        *("eig", "eigh", "eigvals", "svd"),
    }
)
"""Functions whose values differ in ``torch._numpy`` (see ``tests/sweeps/numpy_functions.py``)."""

_DIVIDE = frozenset({"floor_divide", "remainder", "mod", "fmod", "divmod", "floordiv", "gcd", "lcm"})
"""Integer divisions. For zero, NumPy warns and torch raises."""

_RAISE = frozenset({"power", "pow", "left_shift", "right_shift", "lshift", "rshift"})
"""Functions that raise in NumPy, or have an undefined result, for some integers as second operand."""

_ROUND = frozenset({"round", "around", "round_"})
"""Functions whose results for integers differ."""


def _sign(x: object, /) -> Any:
    """Return the sign of each element. NaN stays NaN, unlike in ``torch.sign``."""
    sign = tnp.sign(x)
    return tnp.where(tnp.isnan(x), x, sign) if sign.tensor.is_floating_point() else sign


def _take(a: object, indices: object, *args: object, **kwargs: object) -> Any:
    """Return ``take`` with int64 indices."""
    # Indexing a tensor treats a ``uint8`` array as a mask.
    if isinstance(indices, tnp.ndarray):
        indices = indices.astype("int64")
    return tnp.take(a, indices, *args, **kwargs)


_OURS: dict[str, Callable[..., Any]] = {"sign": _sign, "take": _take}
"""Counterparts that are defined in this module."""


@dataclass(frozen=True, slots=True)
class Pair:
    """NumPy's function and its counterpart, which the trace calls. ``pairs`` finds the pair of a function."""

    theirs: Callable[..., Any]
    """NumPy's function, method or operator.

    The reference keeps the function alive, since ``pairs`` has its id as key.
    """
    ours: Callable[..., Any]
    """The function on ``torch._numpy`` arrays that the trace calls in place of ``theirs``."""
    holds: Callable[[Any, list[str]], bool] | None = None
    """Returns whether both functions give the same result.

    None if they always do. The arguments are the second operand, and the dtype kinds (``"f"``) of the first two
    operands.
    """


_INTEGERS = frozenset("biu")
"""The dtype kinds of booleans and integers."""


def _by_known_integer(second: object, kinds: list[str]) -> bool:
    """The ``Pair.holds`` of divisions and powers: the second operand is a small positive constant, or an operand
    is no integer.
    """
    is_small = isinstance(second, (int, np.integer)) and 0 < int(second) < 8
    return is_small or not _INTEGERS.issuperset(kinds)


def _of_fractions(_second: object, kinds: list[str]) -> bool:
    """The ``Pair.holds`` of rounding: the first operand is a float or complex number."""
    return bool(kinds) and kinds[0] not in _INTEGERS


def _condition(name: str) -> Callable[[Any, list[str]], bool] | None:
    """Return ``Pair.holds`` of the function ``name``, or None if both functions always agree."""
    plain = name.strip("_")
    if plain in _ROUND or name in _ROUND:
        return _of_fractions
    in_place = plain.startswith("i") and plain[1:] in _DIVIDE | _RAISE
    return _by_known_integer if plain in _DIVIDE | _RAISE or in_place else None


def _functions() -> Iterator[Pair]:
    """Yield the pairs of functions with the same name. Functions whose values differ are left out."""
    for theirs, ours in _NAMESPACES:
        for name in dir(theirs):
            counterpart = getattr(ours, name, None)
            # The check of ``counterpart`` comes first: reading all names of NumPy would import its lazy
            # modules (f2py, ma, testing).
            if name.startswith("_") or not callable(counterpart):
                continue
            fn = getattr(theirs, name, None)
            if not callable(fn) or isinstance(fn, type) or name in _COMPUTE_OTHERWISE:
                continue
            yield Pair(fn, _OURS.get(name, counterpart), _condition(name))


def _method(name: str) -> Callable[..., Any]:
    """Return the counterpart of the method ``name``: it calls the method of the ``torch._numpy`` array."""
    if name in _OURS:
        return _OURS[name]

    def method(self: object, *args: object, **kwargs: object) -> Any:
        return getattr(self, name)(*args, **kwargs)

    return method


def _methods() -> Iterator[Pair]:
    """Yield the pairs of the methods of arrays and scalars."""
    for cls in (np.ndarray, np.generic):
        for name, descriptor in vars(cls).items():
            has_counterpart = not name.startswith("_") and callable(getattr(tnp.ndarray, name, None))
            if has_counterpart and name not in _COMPUTE_OTHERWISE:
                yield Pair(descriptor, _method(name), _condition(name))


def _operators() -> Iterator[Pair]:
    """Yield the pairs of the functions of module ``operator`` and of builtin functions, which both sides share."""
    names = (
        *(*ARITHMETIC_NAMES, *(f"i{name}" for name in ARITHMETIC_NAMES), *COMPARISON_NAMES),
        *("neg", "pos", "abs", "invert", "inv", "getitem", "setitem", "contains", "index"),
    )
    for name in names:
        fn = function_of(name)
        yield Pair(fn, fn, _condition(name))
    for builtin in (abs, bool, int, float, complex, len, pow):
        yield Pair(builtin, builtin, _condition(builtin.__name__))
    yield Pair(divmod, divmod, _by_known_integer)
    yield Pair(round, lambda a, decimals=0: a.round(decimals), _of_fractions)


def _scalar_types() -> Iterator[Pair]:
    """Yield the pairs of the scalar types, such as ``np.float32``, which convert their argument."""
    for dtype in TORCH_OF:
        counterpart = getattr(tnp, "bool_" if dtype.name == "bool" else dtype.name)
        yield Pair(dtype.type, counterpart)


@cache
def pairs() -> dict[int, Pair]:
    """Return all pairs by the id of NumPy's function. The first call makes them."""
    makers = (_functions, _methods, _operators, _scalar_types)
    return {id(pair.theirs): pair for maker in makers for pair in maker()}


_UFUNC_OF: dict[Any, np.ufunc] = {
    getattr(operator, f"{prefix}{plain}"): getattr(np, ufunc)
    for prefix in ("", "i")
    for plain, ufunc in (("truediv", "true_divide"), ("pow", "power"))
}
"""Maps the operators that cast their operands to the ufuncs that implement them."""
_UFUNC_OF[pow] = np.power


def computing_dtypes(theirs: object, operands: list[Any]) -> tuple[np.dtype[Any], ...] | None:
    """Return the dtypes to which NumPy casts the operands of a ufunc; None for other functions.

    The trace converts integer operands to these dtypes before the counterpart runs.
    """
    ufunc = theirs if isinstance(theirs, np.ufunc) else _UFUNC_OF.get(theirs)
    if ufunc is None or len(operands) != ufunc.nin:
        return None
    dtypes: list[Any] = [
        type(x) if type(x) in (int, float, complex) else np.asarray(x).dtype for x in operands
    ]
    return ufunc.resolve_dtypes((*dtypes, *[None] * ufunc.nout))[: ufunc.nin]
