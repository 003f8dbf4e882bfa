"""Compute an ATen operator on fakes whose sizes are plain integers.

The functions do the last steps of ``FakeTensorMode.dispatch``, for operators and arguments that reach only
these steps. They skip the lookup in profiles of custom operators, because it would import torch's own
compiler. They also skip log records, because an error may be the program's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from fxstack_capture.torch_compat import (
    FakeTensorMode,
    OpOverload,
    UnsupportedOperatorException,
    decomposition_table,
    has_meta,
    in_kernel_invocation_manager,
    meta_table,
    op_implementations_checks,
    simple_registry,
    suggest_memory_format,
    torch_decomp_decompositions,
    tree_leaves,
)
from fxstack_capture.trace.state import Args, Kwargs

_UNKNOWN = frozenset({torch.ops.aten.size.default, torch.ops.aten.sym_size.default})
"""Operators whose kernels cannot be queried from the dispatcher."""


@cache
def kernel_of(func: OpOverload) -> Any:
    """Return the function of (mode, func, args, kwargs) that computes ``func``, or None."""
    if func.namespace != "aten" or func in _UNKNOWN:
        return None
    # a fake function is registered
    if simple_registry.singleton.find(func.name()).fake_impl.kernel is not None:
        return None
    if func not in meta_table and not FakeTensorMode.cpp_meta_supports_symint(FakeTensorMode, func):
        if func in decomposition_table and torch_decomp_decompositions(func):
            return _compute_by_decomposition
        if func._can_decompose():
            return _composite
    if func in _RESIZED:
        return _compute_upsampling
    if any(check(func) for check, _ in op_implementations_checks):
        return _special
    return _meta if has_meta(func) else None


def _compute_by_decomposition(
    mode: FakeTensorMode, func: Callable[..., Any], args: Args, kwargs: Kwargs
) -> Any:
    """Compute an operator by its decomposition in torch, run on fakes."""
    with mode:
        return decomposition_table[func](*args, **kwargs)


def _composite(mode: FakeTensorMode, func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
    """Compute an operator that is composed of other operators (``CompositeImplicitAutograd``)."""
    with mode:
        return func.decompose(*args, **kwargs)


def _special(mode: FakeTensorMode, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Compute an operator by its special rule for fakes. Without such a rule, use its meta function."""
    for check, kernel in op_implementations_checks:
        if check(func):
            result = kernel(mode, func, *args, **kwargs)
            if result is not NotImplemented:
                return result
    if has_meta(func):
        return _meta(mode, func, args, kwargs)
    raise UnsupportedOperatorException(func)


def _meta(mode: FakeTensorMode, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Compute an operator by its meta function. Wrap the results as fakes on the right device."""
    with in_kernel_invocation_manager(mode):
        result = func(*args, **kwargs)
    return mode.wrap_meta_outputs_with_default_device_logic(
        result, func, tree_leaves((args, kwargs)), device=kwargs.get("device")
    )


_RESIZED = frozenset(
    getattr(torch.ops.aten, f"{name}{dims}d").default
    for name in ("upsample_nearest", "_upsample_nearest_exact")
    for dims in (1, 2, 3)
) | {torch.ops.aten.upsample_bilinear2d.default}


def _compute_upsampling(mode: FakeTensorMode, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Compute an upsampling operator. For an empty batch, compute a batch with one item."""
    # torch's meta functions raise ``TypeError`` for empty batches, which eager accepts.
    x, *rest = args
    if x.numel():
        return _meta(mode, func, args, kwargs)
    with mode:
        item = x.new_empty((1, *x.shape[1:]))
        result = func(item, *rest, **kwargs)
        return result.new_empty((0, *result.shape[1:]))


_SHIFTS = {
    torch.ops.aten.__lshift__.Scalar: torch.ops.aten.bitwise_left_shift.Tensor_Scalar,
    torch.ops.aten.__lshift__.Tensor: torch.ops.aten.bitwise_left_shift.Tensor,
    torch.ops.aten.__rshift__.Scalar: torch.ops.aten.bitwise_right_shift.Tensor_Scalar,
    torch.ops.aten.__rshift__.Tensor: torch.ops.aten.bitwise_right_shift.Tensor,
}
"""Maps ``<<`` and ``>>`` to equivalent operators whose meta functions promote dtypes as eager does."""


def promoted_operator(func: Callable[..., Any], args: Args) -> Any:
    """Return the operator whose meta function gives the metadata of ``func``'s result."""
    # The meta functions of the shifts require that each argument has an integer dtype. Eager's kernels
    # require this only of the promoted dtype, for example for a mask and an integer. If eager rejects a call,
    # for example a mask shifted by a mask, torch's own meta function stays in use.
    if func not in _SHIFTS:
        return func
    dtype = torch.result_type(*args)
    return func if dtype.is_floating_point or dtype.is_complex or dtype is torch.bool else _SHIFTS[func]


_CONVOLUTIONS = {torch.ops.aten.convolution.default: 2, torch.ops.aten.convolution_backward.default: 3}
"""Maps an operator to the number of its leading arguments that are tensors of the convolution."""

_INTERPOLATIONS = frozenset(
    getattr(torch.ops.aten, f"{name}_backward").default
    for name in (
        *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
        *("upsample_nearest1d", "upsample_nearest3d", "_upsample_bicubic2d_aa"),
        *("_upsample_nearest_exact1d", "_upsample_nearest_exact3d"),
    )
)
"""Operators whose C++ meta functions accept only integers. The third argument is the size of the result."""
_KEEPING_FORMAT = frozenset(
    {
        torch.ops.aten.upsample_bilinear2d_backward.default,
        torch.ops.aten.upsample_trilinear3d_backward.default,
    }
)


def _of_given_size(mode: FakeTensorMode, func: Callable[..., Any], args: Args, _kwargs: Kwargs) -> Any:
    """Compute the backward of an interpolation. The third argument is the size of the result."""
    gradient, size = args[0], args[2]
    keeps = func in _KEEPING_FORMAT and not _is_plain(gradient)
    memory_format = suggest_memory_format(gradient) if keeps else torch.contiguous_format
    with mode:
        return torch.empty(size, dtype=gradient.dtype, device=gradient.device, memory_format=memory_format)


_LIKE = {
    torch.ops.aten._ctc_loss_backward.default: 1,
    torch.ops.aten._ctc_loss_backward.Tensor: 1,
    torch.ops.aten._masked_softmax_backward.default: 0,
    torch.ops.aten.fractional_max_pool3d_backward.default: 1,
    torch.ops.aten.multi_margin_loss_backward.default: 1,
    torch.ops.aten.multilabel_margin_loss_backward.default: 1,
}
"""Maps operators without meta functions to the argument that has the size and dtype of the result."""


def _of_argument(mode: FakeTensorMode, func: Callable[..., Any], args: Args, _kwargs: Kwargs) -> Any:
    """Return the result of an operator in ``_LIKE``: an empty tensor like one of the arguments."""
    with mode:
        return torch.empty_like(args[_LIKE[func]], memory_format=torch.contiguous_format)


def symbolic_kernel(func: Callable[..., Any], args: Args) -> Any:
    """Return the function that computes a call with symbolic sizes without torch's dispatch. None if there is
    none.
    """
    if func in _LIKE:
        return _of_argument
    return _of_given_size if func in _INTERPOLATIONS else _plain_convolution(func, args)


def _plain_convolution(func: Callable[..., Any], args: Args) -> Any:
    """Return the function that computes a convolution of contiguous CPU tensors. None for other arguments."""
    # torch's rule selects the library that would run the convolution, because the library decides the layout
    # of the result. The selection depends on whether the batch has 16 items, which would guard a symbolic
    # size. But if the arguments are contiguous, every library returns a contiguous result.
    tensors = args[: _CONVOLUTIONS.get(func, 0)]
    if not tensors or not all(map(_is_plain, tensors)) or len({t.dtype for t in tensors}) > 1:
        return None
    return _meta


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is on the CPU, and contiguous without a guard."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    expected: Any = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if not statically_known_true(stride == expected):
            return False
        expected = expected * size
    return True
