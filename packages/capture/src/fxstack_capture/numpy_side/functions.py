"""Pairs of a NumPy function, method or operator and its counterpart for ``torch._numpy`` arrays."""

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
"""Pairs: a module of NumPy and its counterpart."""

_COMPUTE_OTHERWISE = frozenset(
    {
        *("angle", "argsort", "cbrt", "choose", "fix", "heaviside", "modf", "put"),
        *("histogram", "histogram2d", "histogramdd", "unique", "searchsorted", "isscalar"),
        *("eig", "eigh", "eigvals", "svd"),
    }
)
"""Functions that give other values in ``torch._numpy`` (see ``tests/sweeps/numpy_functions.py``)."""

_DIVIDE = frozenset({"floor_divide", "remainder", "mod", "fmod", "divmod", "floordiv", "gcd", "lcm"})
"""Integer divisions. For a zero divisor, NumPy warns and torch raises."""

_RAISE = frozenset({"power", "pow", "left_shift", "right_shift", "lshift", "rshift"})
"""Functions that raise in NumPy, or whose result is undefined, if the second operand is certain integers."""

_ROUND = frozenset({"round", "around", "round_"})
"""Functions that give other results for integers in ``torch._numpy``."""


def _sign(x: object, /) -> Any:
    """Return the sign of each element. NaN stays NaN, which ``torch.sign`` does not do."""
    sign = tnp.sign(x)
    return tnp.where(tnp.isnan(x), x, sign) if sign.tensor.is_floating_point() else sign


def _take(a: object, indices: object, *args: object, **kwargs: object) -> Any:
    """Return ``take`` with int64 indices."""
    # As an index of a tensor, a ``uint8`` array would be a mask.
    if isinstance(indices, tnp.ndarray):
        indices = indices.astype("int64")
    return tnp.take(a, indices, *args, **kwargs)


_OURS: dict[str, Callable[..., Any]] = {"sign": _sign, "take": _take}
"""The counterparts that this module defines, by name."""


@dataclass(frozen=True, slots=True)
class Pair:
    """NumPy's function and its counterpart. The trace calls the counterpart. ``pairs`` finds the pair of a
    function.
    """

    theirs: Callable[..., Any]
    """NumPy's function, method or operator.

    The reference keeps the function alive, because ``pairs`` is keyed by its id.
    """
    ours: Callable[..., Any]
    """The function on ``torch._numpy`` arrays that the trace calls in place of ``theirs``."""
    holds: Callable[[Any, list[str]], bool] | None = None
    """A function that returns whether both functions give the same result. None if they always do.

    Its arguments are the second operand, and the dtype kinds (``"f"``) of the first two operands.
    """


_INTEGERS = frozenset("biu")
"""The kinds of boolean and integer dtypes."""


def _by_known_integer(second: object, kinds: list[str]) -> bool:
    """The ``Pair.holds`` of divisions and powers.

    It is true if the second operand is a small positive constant, or if an operand is no integer.
    """
    is_small = isinstance(second, (int, np.integer)) and 0 < int(second) < 8
    return is_small or not _INTEGERS.issuperset(kinds)


def _of_fractions(_second: object, kinds: list[str]) -> bool:
    """The ``Pair.holds`` of rounding. It is true if the first operand is a float or complex number."""
    return bool(kinds) and kinds[0] not in _INTEGERS


def _condition(name: str) -> Callable[[Any, list[str]], bool] | None:
    """Return the ``Pair.holds`` of the function ``name``. None if both functions always agree."""
    plain = name.strip("_")
    if plain in _ROUND or name in _ROUND:
        return _of_fractions
    in_place = plain.startswith("i") and plain[1:] in _DIVIDE | _RAISE
    return _by_known_integer if plain in _DIVIDE | _RAISE or in_place else None


def _functions() -> Iterator[Pair]:
    """Yield the pairs of functions with the same name. Functions with different values are omitted."""
    for theirs, ours in _NAMESPACES:
        for name in dir(theirs):
            counterpart = getattr(ours, name, None)
            # Check ``counterpart`` first. Reading all names of NumPy would import its lazy modules (f2py, ma,
            # testing).
            if name.startswith("_") or not callable(counterpart):
                continue
            fn = getattr(theirs, name, None)
            if not callable(fn) or isinstance(fn, type) or name in _COMPUTE_OTHERWISE:
                continue
            yield Pair(fn, _OURS.get(name, counterpart), _condition(name))


def _method(name: str) -> Callable[..., Any]:
    """Return the counterpart of the method ``name``: a function that calls this method of a ``torch._numpy``
    array.
    """
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
    """Yield the pairs of functions of module ``operator`` and of builtin functions. They are their own
    counterparts.
    """
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
    """Yield the pairs of scalar types, such as ``np.float32``. A call of a scalar type converts the argument."""
    for dtype in TORCH_OF:
        counterpart = getattr(tnp, "bool_" if dtype.name == "bool" else dtype.name)
        yield Pair(dtype.type, counterpart)


@cache
def pairs() -> dict[int, Pair]:
    """Return all pairs, by the id of NumPy's function. The first call makes them."""
    makers = (_functions, _methods, _operators, _scalar_types)
    return {id(pair.theirs): pair for maker in makers for pair in maker()}


_UFUNC_OF: dict[Any, np.ufunc] = {
    getattr(operator, f"{prefix}{plain}"): getattr(np, ufunc)
    for prefix in ("", "i")
    for plain, ufunc in (("truediv", "true_divide"), ("pow", "power"))
}
"""Maps each operator that casts its operands to the ufunc that implements it."""
_UFUNC_OF[pow] = np.power


def computing_dtypes(theirs: object, operands: list[Any]) -> tuple[np.dtype[Any], ...] | None:
    """Return the dtypes to which NumPy casts the operands of a ufunc. None for any other function.

    The trace converts integer operands to these dtypes before it calls the counterpart.
    """
    ufunc = theirs if isinstance(theirs, np.ufunc) else _UFUNC_OF.get(theirs)
    if ufunc is None or len(operands) != ufunc.nin:
        return None
    dtypes: list[Any] = [
        type(x) if type(x) in (int, float, complex) else np.asarray(x).dtype for x in operands
    ]
    return ufunc.resolve_dtypes((*dtypes, *[None] * ufunc.nout))[: ufunc.nin]
