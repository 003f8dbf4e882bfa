"""The dtypes that eager's CPU kernels refuse, and the dtypes that they return.

Torch's fake kernels differ from eager in both respects. The eager kernels are the authority. Operators that
check sizes are called once for each combination of dtypes and ranks, on zeros with a few elements. If such a
call raises an error about dtypes, eager raises the same error for the program's call. Other errors of the
call are ignored, because the sizes are not the program's and all elements are zero.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from fxstack_interchange import torch_compat
from fxstack_interchange.torch_compat import OpOverload
from fxstack_interchange.torch_compat import disable_current_modes as _disable_current_modes

_ABOUT_DTYPES = re.compile(
    r"dtype|scalar type|data ?type|can't be cast|not (yet )?(implemented|supported) for|bool|same type"
    r"|Integer division|[Cc]omplex|more than one element of the written-to tensor"
)
SKIPPED_TAGS = frozenset(
    {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
)
_PLAIN = (int, float, bool, complex, str, type(None), torch.dtype, torch.memory_format)
_CHECKS_SIZES = frozenset(
    """_native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update native_batch_norm
    _native_batch_norm_legit_functional _batch_norm_with_update_functional
    native_layer_norm native_layer_norm_backward native_group_norm
    _prelu_kernel _cdist_forward _softmax _log_softmax linalg_cross cross
    linalg_vector_norm norm dot vdot outer ger mv mm bmm addmv addr addmm baddbmm addbmm cat stack where
    binary_cross_entropy binary_cross_entropy_with_logits huber_loss huber_loss_backward soft_margin_loss
    soft_margin_loss_backward smooth_l1_loss mse_loss kl_div heaviside copysign gcd lcm floor_divide hypot nextafter
    lerp cumsum cumprod cummax cummin logcumsumexp masked_fill masked_scatter index_add index_copy index_fill
    index_put scatter scatter_add scatter_reduce gather put take sort tril triu bitwise_left_shift
    bitwise_right_shift ldexp xlogy float_power true_divide isin clamp_min clamp_max
    nll_loss_forward nll_loss2d_forward multi_margin_loss
    normal bernoulli binomial poisson""".split()  # noqa: SIM905 - names
)
"""Operators that check all sizes before they read any element, and refuse sizes that do not fit.

Pointwise operators and reductions are not listed.
"""
_WRONG_STATISTICS_DTYPE = frozenset(
    {
        torch.ops.aten._native_batch_norm_legit_functional.default,
        torch.ops.aten._batch_norm_with_update_functional.default,
    }
)
"""Operators for which torch's fake kernels give the new statistics another dtype than the old statistics."""
_TRUSTS_SIZES = frozenset({"native_group_norm", "native_layer_norm_backward"})
"""Operators that take the sizes of tensors from other arguments without checking them.

They are called only with the program's sizes.
"""
_REFUSAL_MARK = "refused by eager"
_UNMIXED_DTYPES = ({torch.float32}, {torch.float64}, {torch.bfloat16})
_MAX_ELEMENTS = 1 << 16
"""Maximum number of elements of a call with the program's sizes."""

Dtypes = tuple[torch.dtype | None, ...]
"""The dtypes of an operator's results. None stands for an undefined result."""
Answer = Dtypes | Exception | None
_ANSWERS: dict[tuple[Any, ...], Answer] = {}
_MAX_ANSWERS = 1 << 14
_CHECKABLE: dict[Any, bool] = {}


class _UnknownError(Exception):
    """The call has an argument that ``_describe`` does not support, so its dtypes stay unknown."""


def without_autocast() -> AbstractContextManager[None]:
    """Return a context in which operators run without the casts of autocast."""
    keys = torch_compat.DispatchKeySet(torch_compat.DispatchKey.AutocastCPU)
    return cast("AbstractContextManager[None]", torch_compat.ExcludeDispatchKeyGuard(keys))


def eager_dtypes(func: object, args: Sequence[Any], kwargs: dict[str, Any]) -> Dtypes | None:
    """Return the dtypes of the tensors that eager returns; None if they are unknown.

    Raises eager's exception if eager refuses the dtypes.
    """
    if not _is_checkable_cached(func):
        return None
    key: list[Any] = [func, torch.get_default_dtype(), *kwargs]
    try:
        _describe((*args, *kwargs.values()), key)
    except _UnknownError:
        return None
    cache_key = tuple(key)
    if cache_key not in _ANSWERS:
        if len(_ANSWERS) >= _MAX_ANSWERS:
            _ANSWERS.clear()
        _ANSWERS[cache_key] = _run_on_zeros(func, args, kwargs)
    answer = _ANSWERS[cache_key]
    if isinstance(answer, Exception):
        refusal = type(answer)(*answer.args)
        refusal.__dict__[_REFUSAL_MARK] = True
        raise refusal
    return answer


def is_refusal(error: BaseException) -> bool:
    """Whether ``eager_dtypes`` raised ``error``. Capture asks this about an error of a call on fake tensors."""
    return _REFUSAL_MARK in error.__dict__


def returned_dtypes(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Dtypes | None:
    """Return ``eager_dtypes`` if the call mixes floating-point dtypes or ``func`` is in ``_WRONG_STATISTICS_DTYPE``.

    For all other calls, return None. If ``func`` is a backward operator and eager refuses the dtypes, the
    exception propagates.
    """
    first = None
    for arg in args:
        if isinstance(arg, Tensor) and arg.dtype.is_floating_point:
            first = first or arg.dtype
            if arg.dtype is not first:
                break
    else:
        if func not in _WRONG_STATISTICS_DTYPE:
            return None
    try:
        return eager_dtypes(func, args, kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        # Eager does not call the operators of a decomposition, so its refusal of such an operator is ignored.
        if "backward" in func._opname:
            raise
        return None


def convert_dtypes(result: Any, dtypes: Dtypes) -> Any:
    """Return ``result`` with its tensors converted to ``dtypes``."""
    if isinstance(result, Tensor):
        return result if result.dtype is dtypes[0] else result.to(dtypes[0])
    converted = [
        x if x is None or dtype is None else x.to(dtype) for x, dtype in zip(result, dtypes, strict=True)
    ]
    return converted if isinstance(result, list) else tuple(converted)


def have_other_dtypes(result: Any, dtypes: Dtypes) -> bool:
    """Whether a tensor in ``result`` (one tensor or a sequence) has another dtype than its entry in ``dtypes``.

    Return False if a kernel returned NotImplemented.
    """
    results = (result,) if isinstance(result, Tensor) else result
    if results is NotImplemented:
        return False
    return len(results) == len(dtypes) and any(
        isinstance(x, Tensor) and dtype is not None and x.dtype is not dtype
        for x, dtype in zip(results, dtypes, strict=True)
    )


def _is_checkable_cached(func: object) -> bool:
    """Return ``_is_checkable`` from a cache, because it is asked at each call of a trace."""
    is_checkable = _CHECKABLE.get(func)
    if is_checkable is None:
        is_checkable = _CHECKABLE[func] = _is_checkable(func)
    return is_checkable


def _is_checkable(func: object) -> bool:
    """Whether a call on small zeros is harmless.

    The operator must compute from its arguments alone, and it must check sizes.

    Other operators (``lstm``, backward kernels) leave the size check to their callers. They read out of
    bounds of tensors that do not fit.
    """
    return (
        isinstance(func, OpOverload)
        and func.namespace == "aten"
        and not func.is_view
        and _checks_sizes(func)
        and not SKIPPED_TAGS.intersection(func.tags)
        and (torch.Tag.nondeterministic_seeded not in func.tags or _takes_generator(func))
        and len(func._schema.returns) > 0
        and all(isinstance(r.type, torch.TensorType) for r in func._schema.returns)
    )


@cache
def _takes_generator(func: OpOverload) -> bool:
    """Whether the operator has a parameter ``generator``, so that a call can draw without torch's own generator."""
    return any(argument.name == "generator" for argument in func._schema.arguments)


def _checks_sizes(func: OpOverload) -> bool:
    """Whether eager's kernel checks that the sizes of its arguments fit, so that small sizes cannot crash it."""
    name = func._opname.removesuffix("_")
    if name in _CHECKS_SIZES:
        return True
    # In-place overloads lack some tags of the functional overloads.
    packet = getattr(torch.ops.aten, name, func.overloadpacket)
    return any(
        torch.Tag.pointwise in tags or torch.Tag.reduction in tags
        for tags in (getattr(packet, overload).tags for overload in packet.overloads())
    )


def _describe(values: Iterable[Any], key: list[Any]) -> None:
    """Append to ``key`` the properties of ``values`` that decide the result dtypes.

    The key contains the dtypes of the tensors, the kinds of their dimensions, and the types of the other
    arguments.
    """
    for value in values:
        if isinstance(value, Tensor):
            if value.device.type != "cpu" or value.layout is not torch.strided:
                raise _UnknownError
            key.append((value.dtype, _shape_class(value)))
        elif isinstance(value, (list, tuple)):
            key.append(len(value))
            _describe(value, key)
        elif isinstance(value, (torch.dtype, str, bool)):
            key.append(value)
        elif isinstance(value, (*_PLAIN, torch.Generator)):
            key.append(type(value))
        elif isinstance(value, (torch.SymInt, torch.SymFloat)):
            key.append(int if isinstance(value, torch.SymInt) else float)
        else:
            raise _UnknownError


def _shape_class(tensor: Tensor) -> tuple[str, ...]:
    """Return the kind of each dimension: empty, one element, expanded, or several elements."""
    return tuple(_kind(n, s) for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def _kind(size: int | torch.SymInt, stride: int | torch.SymInt) -> str:
    """Return the kind of a dimension: ``one``, ``empty``, ``expanded`` or ``some`` (several elements)."""
    if type(size) is int and size <= 1:
        return "one" if size else "empty"
    return "expanded" if type(stride) is int and stride == 0 else "some"


def _run_on_zeros(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Answer:
    """Run an operator on zeros of small sizes. If this fails, and the operands are small, run it on the real sizes."""
    answer = None
    if func._opname not in _TRUSTS_SIZES:
        answer = _call(func, args, kwargs, _SmallSizes().size)
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    is_unmixed = {tensor.dtype for tensor in tensors} in _UNMIXED_DTYPES
    if answer is None and not is_unmixed and _total_elements(tensors) <= _MAX_ELEMENTS:
        answer = _call(func, args, kwargs, _size_or_limit)
    return answer


def _total_elements(tensors: Sequence[Tensor]) -> int:
    """Return the total number of elements of ``tensors``; a number above ``_MAX_ELEMENTS`` if a size is unknown."""
    sizes = [[_size_or_limit(n) for n in tensor.shape] for tensor in tensors]
    return sum(map(math.prod, sizes))


def _call(
    func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], size: Callable[[Any], int]
) -> Answer:
    """Call the operator on zeros whose sizes ``size`` changes, and return the result dtypes.

    Return the exception if the call raises an error about dtypes, and None if it raises another error.
    """
    if _takes_generator(func):
        # The call draws from its own generator, so the state of the program's generator does not change.
        kwargs = {**kwargs, "generator": torch.Generator()}
    with (
        _disable_current_modes(),
        torch_compat.DisableTorchFunction(),
        torch_compat.AutoDispatchBelowAutograd(),
        without_autocast(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            result = func(
                *(_replica(arg, size) for arg in args),
                **{name: _replica(arg, size) for name, arg in kwargs.items()},
            )
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            return error.with_traceback(None) if _ABOUT_DTYPES.search(str(error)) else None
    results = (result,) if isinstance(result, Tensor) else result
    return tuple([None if x is None else x.dtype for x in results])


ZEROS = torch.ops.aten.zeros.default
"""Used in place of ``torch.zeros``, which the program may have replaced.

``_ANSWERS`` must not keep a replacement's result.
"""


def _replica(value: object, size: Callable[[Any], int]) -> Any:
    """Return ``value`` with tensors of zeros. Sizes of dimensions come from ``size``."""
    if isinstance(value, Tensor):
        sizes = [size(n) for n in value.shape]
        kinds = _shape_class(value)
        stored = [1 if kind == "expanded" else n for n, kind in zip(sizes, kinds, strict=True)]
        return ZEROS(stored, dtype=value.dtype).expand(sizes)
    if isinstance(value, (list, tuple)):
        return type(value)([size(x) if _is_size(x) else _replica(x, size) for x in value])
    return _replaced(value)


def _is_size(value: object) -> bool:
    return isinstance(value, torch.SymInt) or type(value) is int


def _replaced(value: object) -> Any:
    """Return the replacement of ``value`` in the call on zeros: 1 for a SymInt, 1.0 for a SymFloat, else ``value``."""
    if isinstance(value, torch.SymInt):
        return 1
    return 1.0 if isinstance(value, torch.SymFloat) else value


class _SmallSizes:
    """Maps sizes to small sizes. Equal sizes map to equal sizes, different sizes to different sizes."""

    def __init__(self) -> None:
        self._small_sizes: dict[Any, int] = {}

    def size(self, size: int | torch.SymInt) -> int:
        """Return a small size for a dimension. Equal sizes and equal symbols get equal small sizes."""
        if type(size) is int and size <= 2:
            return size
        identity = size.node.expr if isinstance(size, torch.SymInt) else size
        return self._small_sizes.setdefault(identity, 3 + len(self._small_sizes))


def size_in_call(size: int | torch.SymInt) -> int | None:
    """Return the size in the present call, or None if it is unknown."""
    hint = size.node.hint if isinstance(size, torch.SymInt) else size
    return hint if type(hint) is int else None


def _size_or_limit(size: int | torch.SymInt) -> int:
    """Return the size in the present call; a size above ``_MAX_ELEMENTS`` if it is unknown."""
    hint = size_in_call(size)
    return _MAX_ELEMENTS + 1 if hint is None else hint
