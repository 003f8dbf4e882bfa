"""Whether eager's CPU kernels refuse the arguments of a call that torch's fake kernels accept.

The kernels are asked: a call is made for real, on numbers instead of the program's, with its sizes and all other arguments.
Calls of more than a few thousand elements are not made as they are; where these have arguments beside tensors they are
made on short tensors, and on long ones only if that is refused.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fxstack_interchange import torch_compat
from fxstack_interchange.eager_facts.dtypes import without_autocast
from fxstack_interchange.eager_facts.raising import DATA_CHECKS
from fxstack_interchange.torch_compat import OpOverload, tree_leaves, tree_map
from fxstack_interchange.torch_compat import disable_current_modes as _disable_current_modes

# Limits: kernels of operators that only backward passes call (aten.max_pool2d_with_indices_backward) trust
# their callers. A program that calls such an operator by name gets fewer errors than in eager.

_SKIPPED_TAGS = frozenset(
    {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
)
_SKIPPED_NAMES = ("backward", "lstm", "rnn", "gru", "miopen", "cudnn", "mkldnn", "_foreach", "_fused")
"""Kernels that believe what their callers say, or do much."""
_CHECKING = frozenset({"_softmax_backward_data", "_log_softmax_backward_data"})
"""Kernels of gradients that compare sizes and dtypes before they read anything."""
_UNANSWERABLE = frozenset({"linalg_ldl_solve", "segment_reduce"})
"""Operators whose tensors have to agree in their elements."""
_FEW = 1 << 14
"""Elements of a call that is made as it is."""
_MANY = 1 << 22
_SHORT = 4
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN: tuple[type, ...] = (
    *(int, float, bool, complex, str, type(None)),
    *(torch.dtype, torch.memory_format, torch.device, torch.layout),
    *_SYMBOLIC,
)
_ASKED: dict[Any, bool] = {}
_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError)


class RefusedArgumentsError(RuntimeError):
    """Eager refuses this call; the words are eager's to find."""


def has_symbols(values: object) -> bool:
    """Whether any number in ``values``, or any size of a tensor, is a symbol."""
    return any(
        isinstance(leaf, _SYMBOLIC)
        or (isinstance(leaf, Tensor) and any(isinstance(n, torch.SymInt) for n in leaf.shape))
        for leaf in tree_leaves(values)
    )


def refuses(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: object) -> bool:
    """Whether eager raises for ``func(*args, **kwargs)``, of which fake kernels say that it gives ``result``."""
    asked = _ASKED.get(func)
    if asked is None:
        asked = _ASKED[func] = _may_be_asked(func)
    if not asked:
        return False
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if not all(map(_is_plain, leaves)):
        return False
    try:
        elements = max(map(_elements, (*tensors, *_tensors(result))), default=0)
        if elements <= _FEW:
            return _is_refused(func, args, kwargs, _as_it_is)
        believes = "backward" in func._opname  # its caller: it may read beyond tensors that do not fit
        if believes or elements > _MANY or all(isinstance(leaf, Tensor) for leaf in leaves):
            return False
        short = _is_refused(func, args, kwargs, _short)
        return short and _is_refused(func, args, kwargs, _as_it_is)
    except _UnknownSizeError:
        return False


class _UnknownSizeError(Exception):
    """A size that data decide."""


def _may_be_asked(func: object) -> bool:
    return (
        isinstance(func, OpOverload)
        and func.namespace == "aten"
        and not func.is_view
        and not _SKIPPED_TAGS.intersection(func.tags)
        and (func._opname in _CHECKING or not any(name in func._opname for name in _SKIPPED_NAMES))
        and func._opname not in _UNANSWERABLE
        and len(func._schema.returns) > 0
    )


def _is_plain(value: object) -> bool:
    if isinstance(value, Tensor):
        return value.device.type == "cpu" and value.layout is torch.strided
    return isinstance(value, _PLAIN)


def _tensors(result: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]


def _elements(tensor: Tensor) -> int:
    return math.prod(map(_as_it_is, tensor.shape))


def _as_it_is(size: Any) -> int:
    known = size if type(size) is int else size.node.hint
    if type(known) is not int:
        raise _UnknownSizeError
    return known


def _short(size: object) -> int:
    return min(_as_it_is(size), _SHORT)


def _is_refused(func: Any, args: Sequence[Any], kwargs: dict[str, Any], size: Callable[[Any], int]) -> bool:
    """Whether the call raises; for an operator that refuses some elements: in the same words for all that are tried."""
    fills = _FILLS if func._opname.removesuffix("_") in DATA_CHECKS else _FILLS[:1]
    words: set[str] = set()
    for fill in fills:
        error = _attempt(func, *_real((tuple(args), kwargs), size, fill))
        if error is None:
            return False
        words.add(f"{type(error)} {error}")
    return len(words) == 1


def _attempt(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """What the call raises, if it does."""
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
    """Matrices with ones in their diagonals."""
    made = _ZEROS(sizes, dtype=dtype)
    if len(sizes) > 1:
        made.diagonal(dim1=-2, dim2=-1).fill_(1)
    return made


_ZEROS = torch.ops.aten.zeros.default
"""Not ``torch.zeros``, which the program may have replaced."""
_FILLS: tuple[Callable[..., Tensor], ...] = (_ZEROS, torch.ops.aten.ones.default, _identity)
"""What makes the elements that are tried."""


def _real(values: object, size: Callable[[Any], int], fill: Callable[..., Tensor]) -> Any:
    def replaced(value: object) -> Any:
        if isinstance(value, Tensor):
            with _disable_current_modes():
                return fill([size(n) for n in value.shape], dtype=value.dtype)
        if not isinstance(value, _SYMBOLIC):
            return value
        if value.node.hint is None:
            raise _UnknownSizeError
        return value.node.hint

    return tree_map(replaced, values)
