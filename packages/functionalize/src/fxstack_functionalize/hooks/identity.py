"""May a hook be traced once instead of being called each time, and when are two hooks the same?

A plain Python function may if nothing but its argument and constants decides what it does, and if it changes nothing
but its own locals. That is read off its bytecode: which names of the outside it loads (each must be a constant, a
torch function or another such function), and that it stores only into locals. Everything that it loads is part of
its identity, so a closure that is made anew each step is the same hook, and one whose constant changed is not.
"""

from __future__ import annotations

import builtins
import dis
import math
import re
from dataclasses import dataclass
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule

from fxstack_interchange.literals import LITERAL_TYPES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

OUTSIDE_STORES = frozenset(
    {
        "STORE_GLOBAL",
        "DELETE_GLOBAL",
        "STORE_ATTR",
        "DELETE_ATTR",
        "STORE_SUBSCR",
        "STORE_SLICE",
        "DELETE_SUBSCR",
        "IMPORT_NAME",
        "LOAD_BUILD_CLASS",
        "LOAD_SUPER_ATTR",
        "RETURN_GENERATOR",
    }
)
"""Instructions that may change, or look at, more than the function's own values."""

PURE_BUILTINS = (
    "abs all any bool callable dict divmod enumerate float frozenset int isinstance issubclass len list map max min "
    "pow range repr reversed round set slice sorted str sum tuple type zip "
    "ValueError TypeError RuntimeError NotImplementedError AssertionError"
)
BUILTINS = frozenset(re.findall(r"\w+", PURE_BUILTINS))
"""Builtins without effects."""

TENSOR_STATE = (
    "requires_grad grad_fn is_leaf grad data_ptr storage untyped_storage _version _base _is_view register_hook "
    "requires_grad_ retain_grad backward set_ share_memory_ numpy tolist item __dict__ __globals__"
)
HIDDEN_STATE = frozenset(re.findall(r"\w+", TENSOR_STATE))
"""Attributes of a tensor that a saved tensor of a compiled graph need not share with eager's."""

TYPES = frozenset(
    {
        torch.Tensor,
        torch.nn.Parameter,
        torch.Size,
        torch.dtype,
        torch.device,
        torch.finfo,
        torch.iinfo,
    }
)
PREDICATES = (torch.cuda.is_available, torch.is_tensor, torch.is_floating_point, torch.is_complex)
FUNCTION_MODULES = frozenset({"torch.nn.functional", "torch.functional"})
LOADS = {"LOAD_GLOBAL": "global", "LOAD_NAME": "global", "LOAD_DEREF": "free"}
ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


class NotTraceableError(Exception):
    """The hook must run in eager; the text says why."""


@dataclass(frozen=True, slots=True)
class _Scan:
    """What a code object loads from outside: (kind, name, attributes taken from it at once)."""

    reads: tuple[tuple[str, str, tuple[str, ...]], ...]
    refusal: str | None


class HookReader:
    """Tells the identity of hooks; remembers what it found in each code object."""

    def __init__(self) -> None:
        self._scans: dict[CodeType, _Scan] = {}

    def identity(self, hook: Any) -> Hashable:
        """Return a key that is equal for hooks that do the same.

        Raises:
            NotTraceableError: if the hook depends on, or changes, something that the key cannot hold.
        """
        if isinstance(hook, GraphModule):
            if [*hook.parameters(), *hook.buffers()]:
                raise NotTraceableError("its GraphModule holds tensors")
            return _as_key(hook)
        return self._callable(hook, ())

    def _callable(self, function: Any, active: tuple[CodeType, ...]) -> Hashable:
        if isinstance(function, partial):
            fixed = [*function.args, *function.keywords.items()]
            inner = self._callable(function.func, active)
            return (partial, inner, tuple(_constant(value, "partial") for value in fixed))
        if not isinstance(function, FunctionType):
            raise NotTraceableError(f"it is a {type(function).__name__}, not a plain function")
        code = function.__code__
        if code in active:
            return ("again", code)
        scan = self._scans.get(code)
        if scan is None:
            scan = self._scans[code] = _scan(code)
        if scan.refusal is not None:
            raise NotTraceableError(scan.refusal)
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items())
        found: list[Hashable] = [_constant(value, "a default argument") for value in defaults]
        for kind, name, attributes in scan.reads:
            value = _load(function, kind, name)
            found.append(self._value(value, name, attributes, (*active, code)))
        return (code, tuple(found))

    def _value(
        self, value: Any, name: str, attributes: Sequence[str], active: tuple[CodeType, ...]
    ) -> Hashable:
        rest = [*attributes]
        while rest and isinstance(value, ModuleType):
            name = f"{name}.{rest[0]}"
            value = getattr(value, rest.pop(0), None)
        if _is_known(value):
            return _as_key(value)
        if isinstance(value, (FunctionType, partial)):
            return self._callable(value, active)
        return _constant(value, name)


def _load(function: FunctionType, kind: str, name: str) -> Any:
    if kind == "free":
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            raise NotTraceableError(f"its variable {name!r} is not set yet") from None
    if name in function.__globals__:
        return function.__globals__[name]
    if name in BUILTINS:
        return getattr(builtins, name)
    raise NotTraceableError(f"it uses {name!r}")


def _is_known(value: Any) -> bool:
    """Whether ``value`` is a function or class whose only effect is its result."""
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    if isinstance(value, BuiltinFunctionType):
        name = value.__name__
        own = getattr(builtins, name, None) is value and name in BUILTINS
        own = own or getattr(math, name, None) is value
        spaces = (torch._C._VariableFunctions, torch._C._nn)  # type: ignore[attr-defined]
        return own or any(getattr(space, name, None) == value for space in spaces)
    if isinstance(value, FunctionType):
        return value.__module__ in FUNCTION_MODULES or value in PREDICATES
    if isinstance(value, type):
        named = issubclass(value, tuple) and hasattr(value, "_fields")
        return value in TYPES or named or getattr(builtins, value.__name__, None) is value
    return False


def _constant(value: Any, name: str) -> Hashable:
    if isinstance(value, (tuple, frozenset, torch.Size)):
        return (type(value), tuple(_constant(item, name) for item in value))
    if isinstance(value, tuple(LITERAL_TYPES)):
        return (type(value), repr(value) if isinstance(value, (float, complex)) else _as_key(value))
    raise NotTraceableError(f"it uses {name!r}, a {type(value).__name__} that may change")


def _as_key(value: Any) -> Hashable:
    key: Hashable = value
    return key


def _scan(code: CodeType) -> _Scan:
    try:
        return _Scan(tuple(dict.fromkeys(_reads(code, frozenset()))), None)
    except NotTraceableError as error:
        return _Scan((), str(error))


def _reads(code: CodeType, bound: frozenset[str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the loads from outside; ``bound`` are the free names that an enclosing scanned function binds."""
    instructions = list(dis.get_instructions(code))
    outside = set(code.co_freevars) - bound
    for number, instruction in enumerate(instructions):
        name = instruction.argval
        if instruction.opname in OUTSIDE_STORES:
            raise NotTraceableError(f"its instruction {instruction.opname} may have an effect")
        if instruction.opname == "STORE_DEREF" and name in outside:
            raise NotTraceableError(f"it assigns to {name!r} of an enclosing function")
        if instruction.opname in ATTRIBUTES and name in HIDDEN_STATE:
            raise NotTraceableError(f"it reads .{name}, which differs for a compiled graph")
        kind = LOADS.get(instruction.opname)
        if kind == "global" or (kind == "free" and name in outside):
            yield kind, name, tuple(_attributes(instructions[number + 1 :]))
    local = bound | frozenset(code.co_cellvars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _reads(constant, local)


def _attributes(following: Sequence[dis.Instruction]) -> Iterator[str]:
    for instruction in following:
        if instruction.opname not in ATTRIBUTES:
            return
        yield instruction.argval
