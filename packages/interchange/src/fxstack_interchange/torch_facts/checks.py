"""Whether eager's CPU kernels refuse arguments that torch's fake kernels accept.

This module runs the real operator to find out, with placeholder tensor elements instead of the program's
data; sizes and all other arguments are the program's. A call with more than ``_MAX_DIRECT_ELEMENTS`` elements
does not run directly; a call with more than ``_MAX_ELEMENTS`` elements never runs. A call between these
limits that has arguments other than tensors first runs on short tensors. It is repeated with the full sizes
only if eager refuses the short call.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fxstack_interchange import torch_compat
from fxstack_interchange.torch_compat import OpOverload, tree_leaves, tree_map
from fxstack_interchange.torch_compat import disable_current_modes as _disable_current_modes
from fxstack_interchange.torch_facts.dtypes import SKIPPED_TAGS, ZEROS, size_in_call, without_autocast
from fxstack_interchange.torch_facts.raising import DATA_CHECKS

# Limits: kernels of operators that only backward passes call (aten.max_pool2d_with_indices_backward) do not
# check their arguments. A program that calls such an operator by name gets fewer errors than in eager.

_SKIPPED_NAMES = ("backward", "lstm", "rnn", "gru", "miopen", "cudnn", "mkldnn", "_foreach", "_fused")
"""Kernels that do not check their arguments, or that are expensive."""
_CHECKING = frozenset({"_softmax_backward_data", "_log_softmax_backward_data"})
"""Gradient kernels that compare sizes and dtypes before they read any element."""
_NEEDS_CONSISTENT_DATA = frozenset({"linalg_ldl_solve", "segment_reduce"})
"""Operators whose tensors must have consistent elements. Placeholder elements do not satisfy this condition."""
_MAX_DIRECT_ELEMENTS = 1 << 14
"""Maximum number of elements of a call that runs with its own sizes without a shorter call before."""
_MAX_ELEMENTS = 1 << 22
_MAX_SHORT_SIZE = 4
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_LARGEST_FLOAT = torch.finfo(torch.float64).max
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN: tuple[type, ...] = (
    *(int, float, bool, complex, str, type(None)),
    *(torch.dtype, torch.memory_format, torch.device, torch.layout),
    *_SYMBOLIC,
)
_CHECKABLE: dict[Any, bool] = {}
_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError)


class RefusedArgumentsError(RuntimeError):
    """Eager refuses this call. The exception has no message: the call runs in eager, whose error has one."""


def has_symbols(values: object) -> bool:
    """Whether ``values`` contain a symbolic number, or a tensor with a symbolic size."""
    return any(
        isinstance(leaf, _SYMBOLIC)
        or (isinstance(leaf, Tensor) and any(isinstance(n, torch.SymInt) for n in leaf.shape))
        for leaf in tree_leaves(values)
    )


def refuses(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: object) -> bool:
    """Whether eager raises for ``func(*args, **kwargs)``.

    Fake kernels return ``result`` for the same call.
    """
    is_checkable = _CHECKABLE.get(func)
    if is_checkable is None:
        is_checkable = _CHECKABLE[func] = _is_checkable(func)
    if not is_checkable:
        return False
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if not all(map(_is_plain, leaves)):
        return False
    try:
        elements = max(map(_elements, (*tensors, *_tensors(result))), default=0)
        if elements <= _MAX_DIRECT_ELEMENTS:
            return _is_refused(func, args, kwargs, _full_size)
        # A backward kernel does not check its arguments. It may read out of bounds of tensors that do not
        # fit.
        is_backward = "backward" in func._opname
        if is_backward or elements > _MAX_ELEMENTS or all(isinstance(leaf, Tensor) for leaf in leaves):
            return False
        is_short_refused = _is_refused(func, args, kwargs, _short_size)
        return is_short_refused and _is_refused(func, args, kwargs, _full_size)
    except _UnknownSizeError:
        return False


def refused_ranges(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: object, known: set[object]
) -> Iterator[tuple[torch.SymFloat, float]]:
    """Yield (symbolic float, bound) for each float that eager refuses if it exceeds the range of a dtype.

    A number that becomes a tensor's element must be within the range of the tensor's dtype. The caller guards the
    bound. ``known`` receives the calls whose ranges have been yielded: an optimizer makes one call for each parameter.
    """
    leaves = tree_leaves((args, kwargs))
    floats = [leaf for leaf in leaves if type(leaf) is torch.SymFloat and leaf.node.hint is not None]
    numbers = {number.node.expr: number for number in floats}  # a list for ``_foreach`` repeats one number
    if not numbers:
        return
    dtypes = {tensor.dtype for tensor in _tensors((args, kwargs, result))} | {torch.float32}
    largest = sorted(bound for dtype in dtypes if (bound := _largest(dtype)) < _LARGEST_FLOAT)
    kinds = tuple(map(_kind, leaves))
    for expression, number in numbers.items():
        call = func, expression, kinds
        if call in known:
            continue
        known.add(call)
        for bound in largest:
            positional, keywords = tree_map(partial(_replaced, expression, 2 * bound), (tuple(args), kwargs))
            if refuses(func, positional, keywords, result):
                yield number, bound
                break


def _kind(leaf: object) -> object:
    """Return all of an argument that may decide whether eager refuses a number beside it."""
    if isinstance(leaf, Tensor):
        return leaf.dtype, leaf.dim() > 0
    return leaf.node.expr if isinstance(leaf, _SYMBOLIC) else (type(leaf), repr(leaf))


def _largest(dtype: torch.dtype) -> float:
    """Return the largest number of ``dtype``."""
    if dtype.is_floating_point or dtype.is_complex:
        return float(torch.finfo(dtype).max)
    return float(torch.iinfo(dtype).max) if dtype in _INTEGERS else _LARGEST_FLOAT


def _replaced(expression: object, by: float, value: object) -> object:
    return by if isinstance(value, torch.SymFloat) and value.node.expr == expression else value


class _UnknownSizeError(Exception):
    """A size depends on data, so it has no hint."""


def _is_checkable(func: object) -> bool:
    """Whether eager's checks can be run for an operator: it is functional, and its errors do not depend on data."""
    return (
        isinstance(func, OpOverload)
        and func.namespace == "aten"
        and not func.is_view
        and not SKIPPED_TAGS.intersection(func.tags)
        and (func._opname in _CHECKING or not any(name in func._opname for name in _SKIPPED_NAMES))
        and func._opname not in _NEEDS_CONSISTENT_DATA
        and len(func._schema.returns) > 0
    )


def _is_plain(value: object) -> bool:
    """Whether an argument can be replaced by a real one: a strided tensor of the CPU, or a plain value."""
    if isinstance(value, Tensor):
        return value.device.type == "cpu" and value.layout is torch.strided
    return isinstance(value, _PLAIN)


def _tensors(result: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


def _elements(tensor: Tensor) -> int:
    return math.prod(map(_full_size, tensor.shape))


def _full_size(size: Any) -> int:
    """Return a size as in the present call. Raise _UnknownSizeError for a size without hint."""
    hint = size_in_call(size)
    if hint is None:
        raise _UnknownSizeError
    return hint


def _short_size(size: object) -> int:
    return min(_full_size(size), _MAX_SHORT_SIZE)


def _is_refused(func: Any, args: Sequence[Any], kwargs: dict[str, Any], size: Callable[[Any], int]) -> bool:
    """Whether the call raises with sizes changed by ``size``.

    An operator of ``DATA_CHECKS`` also refuses some elements. For such an operator, the arguments are refused only
    if the call raises the same error for every fill in ``_FILLS``.
    """
    fills = _FILLS if func._opname.removesuffix("_") in DATA_CHECKS else _FILLS[:1]
    messages: set[str] = set()
    for fill in fills:
        error = _attempt(func, *_real((tuple(args), kwargs), size, fill))
        if error is None:
            return False
        messages.add(f"{type(error)} {error}")
    return len(messages) == 1


def _attempt(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """Make the call. Return the exception that it raises, or None."""
    # A check must not advance the program's random numbers.
    state = torch.get_rng_state() if torch.Tag.nondeterministic_seeded in func.tags else None
    with (
        _disable_current_modes(),
        torch_compat.DisableTorchFunction(),
        torch_compat.AutoDispatchBelowAutograd(),
        without_autocast(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            func(*args, **kwargs)
        except _ERRORS as error:
            return error.with_traceback(None)
        finally:
            if state is not None:
                torch.set_rng_state(state)
    return None


def _identity(sizes: list[int], dtype: torch.dtype) -> Tensor:
    """Return matrices with ones on their diagonals."""
    matrices = ZEROS(sizes, dtype=dtype)
    if len(sizes) > 1:
        matrices.diagonal(dim1=-2, dim2=-1).fill_(1)
    return matrices


_FILLS: tuple[Callable[..., Tensor], ...] = (ZEROS, torch.ops.aten.ones.default, _identity)
"""Functions that return the placeholder elements of the test calls."""


def _real(values: object, size: Callable[[Any], int], fill: Callable[..., Tensor]) -> Any:
    """Return ``values`` with real tensors from ``fill`` for fake ones, and hints for symbols.

    ``size`` gives the size of each dimension.
    """

    def replaced(value: object) -> Any:
        """Return the replacement of one value. Raise _UnknownSizeError for a symbol without hint."""
        if isinstance(value, Tensor):
            with _disable_current_modes():
                return fill([size(n) for n in value.shape], dtype=value.dtype)
        if not isinstance(value, _SYMBOLIC):
            return value
        if value.node.hint is None:
            raise _UnknownSizeError
        return value.node.hint

    return tree_map(replaced, values)
