"""The callables that become one graph node instead of being inlined.

Leaves are torch's operators: builtin functions, tensor methods (also methods written in Python), the
functions of ``torch.nn.functional``, operator overloads and custom operators. The interpreter inlines all
other Python code of torch (modules, context managers, initialisers) like user code. The tables hold the
function objects, so a replaced function does not match.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.torch_compat import CustomOpDef, OpOverload, OpOverloadPacket
from fxstack_capture.torch_side.global_state.import_snapshot import is_unchanged

_PYTHON_OP_MODULES = frozenset(
    (
        *("torch.functional", "torch.nn.functional", "torch._tensor", "torch.sparse"),
        *("torch._lobpcg", "torch._lowrank", "torch._jit_internal", "torch.signal.windows.windows"),
    )
)
_NOT_OPS = frozenset(
    (
        *(
            "boolean_dispatch",
            "_overload",
            "handle_torch_function",
            "__torch_function__",
            "__torch_dispatch__",
        ),
        *(
            "__init_subclass__",
            "__dir__",
            "__hash__",
            "broadcast_shapes",
            "_get_softmax_dim",
            "_canonical_mask",
        ),
        *("_none_or_dtype", "assert_int_or_pair", "_list_with_default"),
    )
)
_BUILTIN_OP_MODULES = tuple(
    module
    for name in ("_nn", "_linalg", "_fft", "_special", "_sparse", "_nested")
    if isinstance(module := getattr(torch_compat.C, name, None), ModuleType)
)


@cache
def _python_ops() -> frozenset[object]:
    """Return the operators that torch implements as Python functions."""
    namespaces = (torch.nn.functional, torch.functional, torch, torch.Tensor, torch.sparse)
    return frozenset(
        value
        for namespace in (*namespaces, torch.signal.windows)
        for name, value in vars(namespace).items()
        if isinstance(value, FunctionType) and value.__module__ in _PYTHON_OP_MODULES and name not in _NOT_OPS
    )


@cache
def _builtin_ops() -> frozenset[object]:
    """Return torch's operators that are builtin functions."""
    holders = (torch_compat.VariableFunctions, *_BUILTIN_OP_MODULES)
    return frozenset(
        value
        for holder in holders
        for name in dir(holder)
        if type(value := getattr(holder, name)) is BuiltinFunctionType
    )


def is_operator(fn: object) -> bool:
    """Return whether a call of ``fn`` becomes one node of the graph."""
    test = _TESTS.get(type(fn))
    return isinstance(fn, (OpOverload, OpOverloadPacket, CustomOpDef)) if test is None else test(fn)


def _is_tensor_descriptor(fn: Any) -> bool:
    """Return whether a descriptor belongs to the C base class of tensors."""
    return isinstance(fn.__objclass__, type) and issubclass(fn.__objclass__, torch_compat.TensorBase)


_TESTS: dict[type, Callable[[Any], bool]] = {
    BuiltinFunctionType: lambda fn: isinstance(fn.__self__, torch.Tensor) or fn in _builtin_ops(),
    FunctionType: lambda fn: fn in _python_ops() and is_unchanged(fn),
    MethodType: lambda fn: isinstance(fn.__self__, torch.Tensor) and fn.__func__ in _python_ops(),
    MethodDescriptorType: _is_tensor_descriptor,
    WrapperDescriptorType: _is_tensor_descriptor,
    MethodWrapperType: lambda fn: isinstance(fn.__self__, torch.Tensor),
}


def is_compliant(fn: object) -> bool:
    """Return whether an operator has torch's tag ``pt2_compliant_tag``; True for any other callable."""
    if isinstance(fn, OpOverloadPacket):
        return all(is_compliant(getattr(fn, name)) for name in fn.overloads())
    return not isinstance(fn, OpOverload) or torch.Tag.pt2_compliant_tag in fn.tags
