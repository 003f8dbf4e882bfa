"""Operators by qualified name, through a strict allow-list.

A file names what a node calls: ``torch.ops.aten.add.Tensor``, ``torch.nn.functional.linear``,
``operator.getitem``. A name is looked up in the tables below and nowhere else; nothing is imported. What
reads or writes files, starts processes or compiles is refused by name, wherever it may be found.
"""

from __future__ import annotations

import builtins
import math
import operator
import types
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.fft
import torch.linalg
import torch.nn.functional
import torch.special

from fxstack_interchange import torch_compat
from fxstack_interchange.errors import LoadError, SaveError
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
"""Where ordinary functions live; searched in this order when a function is given a name."""

_EXTRA_TORCH = _words("""
    set_autocast_enabled set_autocast_dtype set_autocast_cpu_enabled set_autocast_cpu_dtype
    set_autocast_gpu_dtype set_autocast_cache_enabled clear_autocast_cache autocast_increment_nesting
    autocast_decrement_nesting sym_max sym_min sym_not sym_ite sym_int sym_float sym_sum sym_sqrt
    sym_fresh_size _check _check_is_size tensor as_tensor asarray scalar_tensor manual_seed seed initial_seed
    is_grad_enabled is_tensor numel Size
""")
"""Names of ``torch`` itself that are allowed besides its tensor functions."""

_EXTRA_C = _words("""
    _set_grad_enabled _set_deterministic_algorithms _set_cublas_allow_tf32 _set_default_dtype
""")
_EXTRA_AUTOCAST = frozenset({"_enter_autocast", "_exit_autocast"})

_REFUSED = _words("""
    load save from_file compile hub jit serialization package import_ir_module _import_ir_module
    open eval exec __import__ system call
""")

_FUNCTION_TYPES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)


def name_of(target: object) -> str:
    """Return the qualified name under which a file refers to ``target``.

    Raises:
        SaveError: it is not in the allow-list.
    """
    try:
        name = _names().get(target) if not isinstance(target, OpOverload) else None
    except TypeError:
        name = None
    if name is None:
        name = _operator_name(target)
    if name is None:
        shown = getattr(target, "__qualname__", None) or repr(target)
        module = getattr(target, "__module__", "?")
        msg = (
            f"the target {module}.{shown} is not an operator the format can name; files refer to "
            "torch operators, torch functions, operator, math and a few builtins"
        )
        raise SaveError(msg)
    return name


def resolve(name: object) -> Callable[..., Any]:
    """Return the operator that ``name`` stands for.

    Raises:
        LoadError: the name is not in the allow-list, or this torch does not have it.
    """
    if not isinstance(name, str):
        raise LoadError(f"an operator's name must be text, found {name!r:.100}")
    if name.startswith("torch.ops."):
        return _registered_operator(name)
    found = _table().get(name)
    if found is None:
        msg = f"unknown operator {name!r}: not in the format's allow-list, or absent from this torch"
        raise LoadError(f"{msg} ({torch.__version__})")
    return found


def is_tensor_method(name: object) -> bool:
    """Whether a ``call_method`` node may call ``name``."""
    allowed = isinstance(name, str) and name not in _REFUSED
    return allowed and callable(getattr(torch.Tensor, str(name), None))


def _operator_name(target: object) -> str | None:
    if isinstance(target, OpOverload):
        return f"torch.ops.{target}"
    if isinstance(target, OpOverloadPacket):
        return f"torch.ops.{target}"
    if isinstance(target, HigherOrderOperator):
        return f"torch.ops.higher_order.{target.name()}"
    return None


def _registered_operator(name: str) -> Callable[..., Any]:
    parts = name.split(".")[2:]
    unknown = LoadError(
        f"unknown operator {name!r}: it is not registered with this torch ({torch.__version__}); "
        "import the library that registers it before loading"
    )
    if len(parts) not in (2, 3) or not all(part.isidentifier() for part in parts):
        raise unknown
    if parts[1] in _REFUSED or parts[0].startswith("__"):
        raise LoadError(f"operator {name!r} is refused: files may not name it")
    if parts[0] == "higher_order":
        return _higher_order(parts[1], unknown)
    found: Any = torch.ops
    for part in parts:
        found = getattr(found, part, None)
    if not isinstance(found, OpOverload | OpOverloadPacket):
        raise unknown
    made: Callable[..., Any] = found
    return made


def _higher_order(name: str, unknown: LoadError) -> Callable[..., Any]:
    found: Any = getattr(torch.ops.higher_order, name, None)
    if not isinstance(found, HigherOrderOperator):
        raise unknown
    made: Callable[..., Any] = found
    return made


@cache
def _table() -> dict[str, Callable[..., Any]]:
    """Return every allowed function by name; a pure function of the installed torch."""
    table: dict[str, Callable[..., Any]] = {}
    tensor_functions = set(dir(torch_compat.VariableFunctions))
    overridable = torch.overrides.get_overridable_functions()
    tensor_functions |= {f.__name__ for f in overridable[torch] if hasattr(f, "__name__")}
    allowed = {"torch": tensor_functions | _EXTRA_TORCH, "torch.amp.autocast_mode": _EXTRA_AUTOCAST}
    for prefix, namespace in _NAMESPACES.items():
        for name in sorted(dir(namespace)):
            if name in _REFUSED or (prefix in allowed and name not in allowed[prefix]):
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
    # The methods of torch.Tensor are descriptors; higher-order operators are named by themselves.
    return isinstance(value, _FUNCTION_TYPES) or getattr(value, "__module__", "") == "torch._jit_internal"


def _belongs(value: object, prefix: str) -> bool:
    """Whether a function found in a namespace is one of torch's, not a helper that its file imported."""
    module = str(getattr(value, "__module__", None) or "")
    if prefix in ("operator", "math"):
        return True
    return not module or module.split(".", maxsplit=1)[0] in ("torch", "_operator", "builtins")


@cache
def _names() -> dict[Any, str]:
    names: dict[Any, str] = {}
    for name, value in _table().items():
        names.setdefault(value, name)
    return names
