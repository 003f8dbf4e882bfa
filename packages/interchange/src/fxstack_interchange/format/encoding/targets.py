"""Operators by qualified name, through a strict allow-list.

A file names the function that a node calls: ``torch.ops.aten.add.Tensor``, ``torch.nn.functional.linear``,
``operator.getitem``. The reader looks up a name only in the tables below, and imports nothing. ``_REFUSED``
excludes by name the functions that read or write files, start processes or compile code, in every namespace.
"""

from __future__ import annotations

import builtins
import math
import operator
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
import torch.fft
import torch.linalg
import torch.nn.functional
import torch.special

from fxstack_interchange import torch_compat
from fxstack_interchange.format.errors import LoadError, SaveError
from fxstack_interchange.torch_compat import HigherOrderOperator, OpOverload, OpOverloadPacket


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BUILTINS = _words("""
    abs bool complex divmod float getattr int len max min pow round slice sum tuple
""")

_NAMESPACES: dict[str, Any] = {
    "torch": torch,
    "torch.nn.functional": torch.nn.functional,
    "torch.special": torch.special,
    "torch.fft": torch.fft,
    "torch.linalg": torch.linalg,
    "torch.sparse": torch.sparse,
    "torch._VF": torch_compat.VF,
    "torch._C._nn": torch_compat.nn,
    "torch._C._special": torch_compat.special,
    "torch._C._fft": torch_compat.fft,
    "torch._C._linalg": torch_compat.linalg,
    "torch._C._sparse": torch_compat.sparse,
    "torch.functional": torch.functional,
    "torch.Tensor": torch.Tensor,
    "torch.amp.autocast_mode": torch.amp.autocast_mode,
    "operator": operator,
    "math": math,
}
"""The namespaces of ordinary functions. ``name_of`` uses the first namespace that holds the function."""

_EXTRA_TORCH = _words("""
    set_autocast_enabled set_autocast_dtype set_autocast_cpu_enabled set_autocast_cpu_dtype
    set_autocast_gpu_dtype set_autocast_cache_enabled clear_autocast_cache autocast_increment_nesting
    autocast_decrement_nesting sym_max sym_min sym_not sym_ite sym_int sym_float sym_sum sym_sqrt
    sym_fresh_size _check _check_is_size tensor as_tensor asarray scalar_tensor manual_seed seed initial_seed
    is_grad_enabled is_tensor numel Size
""")
"""Allowed names of ``torch`` besides its tensor functions."""

_EXTRA_C = _words("""
    _set_grad_enabled _set_deterministic_algorithms _set_cublas_allow_tf32 _set_default_dtype
""")
_EXTRA_AUTOCAST = frozenset({"_enter_autocast", "_exit_autocast"})

_REFUSED = _words("""
    load save from_file compile hub jit serialization package import_ir_module _import_ir_module
    open eval exec __import__ system call __call__ _from_blob frombuffer from_numpy from_dlpack
    handle_torch_function boolean_dispatch overload _overload _add_docstr _jit_unused as_sparse_gradcheck
    has_torch_function has_torch_function_unary has_torch_function_variadic
""")
"""Names that a file may not use: files, processes, code, and functions that call arguments or read raw memory."""

_METHODS = _words("""
    bfloat16 bool byte cdouble cfloat char cholesky dim_order double eig float half int ipu long lstsq lu mtia
    ndimension nelement new_tensor qr short solve symeig to_sparse_coo tolist type unique xpu
""")
"""Allowed methods of ``torch.Tensor`` besides those that are ATen operators."""

_SPECIAL_METHODS = frozenset(
    f"__{name}__"
    for name in _words("""
    abs add and bool complex contains div eq float floordiv ge getitem gt iadd iand idiv ifloordiv ilshift imod
    imul index int invert ior ipow irshift isub itruediv ixor le len long lshift lt matmul mod mul ne neg nonzero
    or pos pow radd rand rdiv reversed rfloordiv rlshift rmatmul rmod rmul ror rpow rrshift rshift rsub rtruediv
    rxor setitem sub truediv xor
""")
)
"""Allowed names of ``torch.Tensor`` with two underscores: the operators."""

_ATTRIBUTES = _words("""
    H T mH mT real imag data grad grad_dtype shape ndim dtype device layout names itemsize nbytes requires_grad
    retains_grad is_leaf output_nr _version is_cpu is_cuda is_ipu is_maia is_meta is_mkldnn is_mps is_mtia
    is_nested is_quantized is_sparse is_sparse_csr is_vulkan is_xla is_xpu type index eps max min tiny
""")
"""Attributes that a node may read by ``getattr``: data of tensors, numbers, devices and ``torch.finfo``."""

_FUNCTION_TYPES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)


def name_of(target: object) -> str:
    """Return the qualified name by which a file refers to ``target``.

    Raises:
        SaveError: ``target`` is not in the allow-list.
    """
    try:
        name = _names().get(target) if not isinstance(target, OpOverload) else None
    # An unhashable target is in no table.
    except TypeError:
        name = None
    if name is None:
        name = _operator_name(target)
    if name is None:
        target_name = getattr(target, "__qualname__", None) or repr(target)
        module = getattr(target, "__module__", "?")
        msg = (
            f"the target {module}.{target_name} is not an operator the format can name; files refer to "
            "torch operators, torch functions, operator, math and a few builtins"
        )
        raise SaveError(msg)
    return name


def resolve(name: object) -> Callable[..., Any]:
    """Return the operator that ``name`` refers to.

    Raises:
        LoadError: the name is not in the allow-list, or this torch does not have it.
    """
    if not isinstance(name, str):
        raise LoadError(f"an operator's name must be text, found {name!r:.100}")
    if name.startswith("torch.ops."):
        return _registered_operator(name)
    function = _table().get(name)
    if function is None:
        msg = f"unknown operator {name!r}: not in the format's allow-list, or absent from this torch"
        raise LoadError(f"{msg} ({torch.__version__})")
    return function


def is_tensor_method(name: object) -> bool:
    """Whether a ``call_method`` node may call ``name``: an ATen operator, or one of a closed list."""
    if not isinstance(name, str) or name in _REFUSED or not callable(getattr(torch.Tensor, name, None)):
        return False
    return name in _METHODS or (not name.startswith("__") and _is_aten(name))


def _is_aten(name: str) -> bool:
    return isinstance(getattr(torch.ops.aten, name, None), OpOverloadPacket)


def check_attribute(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Check the arguments of a call of ``getattr``, which could reach any Python code by other names.

    Raises:
        LoadError: the call reads an attribute that is not in the closed list.
    """
    name = args[1] if len(args) in (2, 3) else None
    if kwargs or not isinstance(name, str) or name not in _ATTRIBUTES:
        raise LoadError(f"getattr of {name!r:.100}: files may read only data of tensors, numbers and devices")


def _operator_name(target: object) -> str | None:
    """Return the name of an operator in a file, for example ``torch.ops.aten.add.Tensor``; None for other targets."""
    if isinstance(target, OpOverload):
        return f"torch.ops.{target}"
    if isinstance(target, OpOverloadPacket):
        return f"torch.ops.{target}"
    if isinstance(target, HigherOrderOperator):
        return f"torch.ops.higher_order.{target.name()}"
    return None


def _registered_operator(name: str) -> Callable[..., Any]:
    """Return the operator with this name. Raise LoadError if torch has none, or if files may not name it."""
    parts = name.split(".")[2:]
    unknown = LoadError(
        f"unknown operator {name!r}: it is not registered with this torch ({torch.__version__}); "
        "import the library that registers it before loading"
    )
    if len(parts) not in (2, 3) or not all(part.isidentifier() for part in parts):
        raise unknown
    if not _REFUSED.isdisjoint((parts[1], *parts[1].split("_"))) or any(
        p.startswith("__") for p in parts[::2]
    ):
        raise LoadError(f"operator {name!r} is refused: files may not name it")
    if parts[0] == "higher_order":
        return _higher_order(parts[1], unknown)
    operator: Any = torch.ops
    for part in parts:
        operator = getattr(operator, part, None)
    if not isinstance(operator, OpOverload | OpOverloadPacket):
        raise unknown
    result: Callable[..., Any] = operator
    return result


def _higher_order(name: str, unknown: LoadError) -> Callable[..., Any]:
    """Return the higher-order operator ``name``. Raise the error ``unknown`` if torch has none."""
    operator: Any = getattr(torch.ops.higher_order, name, None)
    if not isinstance(operator, HigherOrderOperator):
        raise unknown
    result: Callable[..., Any] = operator
    return result


@cache
def _table() -> dict[str, Callable[..., Any]]:
    """Return every function that files may name, by name, for example ``torch.add``.

    It depends only on the installed torch.
    """
    table: dict[str, Callable[..., Any]] = {}
    tensor_functions = set(dir(torch_compat.VariableFunctions))
    overridable = torch.overrides.get_overridable_functions()
    tensor_functions |= {f.__name__ for f in overridable[torch] if hasattr(f, "__name__")}
    allowed = {"torch": tensor_functions | _EXTRA_TORCH, "torch.amp.autocast_mode": _EXTRA_AUTOCAST}
    for prefix, namespace in _NAMESPACES.items():
        # Sorted, because files use the first name of a function.
        for name in sorted(dir(namespace)):
            if name in _REFUSED or (prefix in allowed and name not in allowed[prefix]):
                continue
            if prefix == "torch.Tensor" and not (
                is_tensor_method(name) or name in _SPECIAL_METHODS or name.startswith("new_")
            ):
                continue
            value = getattr(namespace, name, None)
            if value is not None and _is_function(value) and _belongs(value, prefix):
                table[f"{prefix}.{name}"] = value
    table.update(
        {f"torch._C.{n}": getattr(torch_compat.C, n) for n in sorted(_EXTRA_C) if hasattr(torch_compat.C, n)}
    )
    table.update({f"builtins.{name}": getattr(builtins, name) for name in sorted(_BUILTINS)})
    return table


def _is_function(value: object) -> bool:
    """Whether a member of a module of torch is a function, which a file may name."""
    # The methods of torch.Tensor are descriptors. Higher-order operators are not functions here, because
    # ``_operator_name`` names them.
    return isinstance(value, _FUNCTION_TYPES)


def _belongs(value: object, prefix: str) -> bool:
    """Whether a function in a namespace belongs to torch.

    A namespace may also hold helpers that its module has imported.
    """
    module = str(getattr(value, "__module__", None) or "")
    if prefix in ("operator", "math"):
        return True
    return not module or module.split(".", maxsplit=1)[0] in ("torch", "_operator", "builtins")


@cache
def _names() -> dict[Any, str]:
    """Return the name of each allowed function. A function with several names has the first name of the table."""
    names: dict[Any, str] = {}
    for name, value in _table().items():
        names.setdefault(value, name)
    return names
