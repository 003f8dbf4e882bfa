"""Find in bytecode which globals and variables of enclosing functions a Python function reads."""

from __future__ import annotations

import builtins
import dis
import math
import re
from collections.abc import Callable, Collection, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_interchange.bytecode import Kind, NameLoad, name_loads

Check = Callable[[dis.Instruction, Collection[str]], None]
"""Raises for a forbidden instruction. The names are the free variables that no scanned function binds."""

PURE_BUILTINS = (
    "abs all any bool callable dict divmod enumerate float frozenset int isinstance issubclass len list map max min "
    "pow range repr reversed round set slice sorted str sum tuple type zip "
    "ValueError TypeError RuntimeError NotImplementedError AssertionError"
)
BUILTINS = frozenset(re.findall(r"\w+", PURE_BUILTINS))
"""Builtins without effects."""

TYPES = frozenset(
    {torch.Tensor, torch.nn.Parameter, torch.Size, torch.dtype, torch.device, torch.finfo, torch.iinfo}
)
PREDICATES = (torch.cuda.is_available, torch.is_tensor, torch.is_floating_point, torch.is_complex)
FUNCTION_MODULES = frozenset({"torch.nn.functional", "torch.functional"})


def reads_of(code: CodeType, check: Check, bound: frozenset[str] = frozenset()) -> Iterator[NameLoad]:
    """Yield each read of a name that ``code`` does not bind: a global, or a variable of an enclosing function.

    ``bound``: free names that an enclosing function binds.
    """
    outside = set(code.co_freevars) - bound
    for instruction in dis.get_instructions(code):
        check(instruction, outside)
    for load in name_loads(code):
        if load.kind is Kind.READS_GLOBAL or load.name in outside:
            yield load
    local = bound | frozenset(code.co_cellvars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from reads_of(constant, check, local)


def load(
    function: FunctionType,
    read: NameLoad,
    allowed_builtins: Collection[str],
    error: Callable[[str], Exception],
) -> tuple[Any, str, list[str]]:
    """Return (value, dotted name, remaining attributes) of ``read``. Attributes are followed only through modules.

    Raises:
        Exception: ``error(reason)``, if the name has no value now.
    """
    kind, name, attributes = read
    value, rest = _loaded(function, kind, name, allowed_builtins, error), [*attributes]
    while rest and isinstance(value, ModuleType):
        name = f"{name}.{rest[0]}"
        if not hasattr(value, rest[0]):
            raise error(f"it uses {name!r}")
        value = getattr(value, rest.pop(0))
    return value, name, rest


def _loaded(
    function: FunctionType,
    kind: Kind,
    name: str,
    allowed_builtins: Collection[str],
    error: Callable[[str], Exception],
) -> Any:
    """Return the value of variable ``name`` in ``function``: of a closure cell, a global or an allowed builtin.

    Raise ``error(text)`` for any other name, and for a cell that is not set yet.
    """
    if kind is Kind.READS_CELL:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            raise error(f"its variable {name!r} is not set yet") from None
    if name in function.__globals__:
        return function.__globals__[name]
    if name in allowed_builtins:
        return getattr(builtins, name)
    raise error(f"it uses {name!r}")


def is_known(value: object) -> bool:
    """Whether ``value`` is a function or class whose only effect is its result."""
    if isinstance(value, (torch_compat.OpOverload, torch_compat.OpOverloadPacket)):
        return True
    if isinstance(value, BuiltinFunctionType):
        name = value.__name__
        own = getattr(builtins, name, None) is value and name in BUILTINS
        own = own or getattr(math, name, None) is value
        spaces = (torch_compat.VariableFunctions, torch_compat.nn)
        return own or any(getattr(space, name, None) == value for space in spaces)
    if isinstance(value, FunctionType):
        return value.__module__ in FUNCTION_MODULES or value in PREDICATES
    if isinstance(value, type):
        named = issubclass(value, tuple) and hasattr(value, "_fields")
        return value in TYPES or named or getattr(builtins, value.__name__, None) is value
    return False
