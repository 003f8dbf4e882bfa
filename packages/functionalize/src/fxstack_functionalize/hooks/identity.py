"""Decide from bytecode whether one trace of a saved-tensor hook is valid for all its calls, and compute a key that is
equal for equal hooks.

A plain Python function can be traced if its behaviour depends on its argument and on constants alone, and if
it changes only its own locals. So each name that it loads from outside must be a constant, a torch function
or another function that meets these conditions. It may store only into locals. The key contains every loaded
value: a closure that is recreated in each step is the same hook, a closure with another constant is not.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Collection, Hashable, Sequence
from functools import partial
from types import CodeType, FunctionType

import torch
from torch.fx import GraphModule

from fxstack_functionalize.code_reads import BUILTINS, is_known, load, reads_of
from fxstack_interchange.bytecode import Kind, NameLoad, kind_of
from fxstack_interchange.format.literals import LITERAL_TYPES

OUTSIDE_STORES = (
    Kind.BINDS_GLOBAL
    | Kind.BINDS_ATTRIBUTE
    | Kind.BINDS_ITEM
    | Kind.IMPORTS
    | Kind.BUILDS_CLASS
    | Kind.READS_SUPER
    | Kind.STARTS_GENERATOR
    | Kind.UNKNOWN
)
"""Instructions that may change or read more than the function's own values."""

TENSOR_STATE = (
    "requires_grad grad_fn is_leaf grad data_ptr storage untyped_storage _version _base _is_view register_hook "
    "requires_grad_ retain_grad backward set_ share_memory_ numpy tolist item __dict__ __globals__"
)
HIDDEN_STATE = frozenset(re.findall(r"\w+", TENSOR_STATE))
"""Attributes of a saved tensor that may differ between a compiled graph and eager."""


class NotTraceableError(Exception):
    """The hook must run in eager. The text is the reason."""


class HookReader:
    """Computes the identity of hooks. Caches the scan of each code object."""

    def __init__(self) -> None:
        self._scans: dict[CodeType, Sequence[NameLoad]] = {}

    def identity(self, hook: object) -> Hashable:
        """Return a key that is equal for hooks with equal behaviour.

        Raises:
            NotTraceableError: if the hook depends on, or changes, something that the key cannot hold.
        """
        if isinstance(hook, GraphModule):
            if [*hook.parameters(), *hook.buffers()]:
                raise NotTraceableError("its GraphModule holds tensors")
            return _as_key(hook)
        return self._callable(hook, ())

    def _callable(self, function: object, active: tuple[CodeType, ...]) -> Hashable:
        """Return the key of a function: its code and the values it reads.

        ``active``: the code of the functions that are being read, so that a recursive function ends. Raise
        NotTraceableError for other callables.
        """
        if isinstance(function, partial):
            fixed = [*function.args, *function.keywords.items()]
            inner = self._callable(function.func, active)
            return (partial, inner, tuple(_constant(value, "partial") for value in fixed))
        if not isinstance(function, FunctionType):
            raise NotTraceableError(f"it is a {type(function).__name__}, not a plain function")
        code = function.__code__
        if code in active:
            return ("again", code)
        if code not in self._scans:
            self._scans[code] = tuple(dict.fromkeys(reads_of(code, _check)))
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items())
        found: list[Hashable] = [_constant(value, "a default argument") for value in defaults]
        for read in self._scans[code]:
            value, name, _ = load(function, read, BUILTINS, NotTraceableError)
            found.append(self._value(value, name, (*active, code)))
        return (code, tuple(found))

    def _value(self, value: object, name: str, active: tuple[CodeType, ...]) -> Hashable:
        """Return the key of a value that a hook reads: a known object of torch, a function, or a constant."""
        if is_known(value):
            return _as_key(value)
        if isinstance(value, (FunctionType, partial)):
            return self._callable(value, active)
        return _constant(value, name)


def _constant(value: object, name: str) -> Hashable:
    """Return the key of an immutable value. ``name`` is for the NotTraceableError about any other value."""
    if isinstance(value, (tuple, frozenset, torch.Size)):
        return (type(value), tuple(_constant(item, name) for item in value))
    if isinstance(value, tuple(LITERAL_TYPES)):
        return (type(value), repr(value) if isinstance(value, (float, complex)) else _as_key(value))
    raise NotTraceableError(f"it uses {name!r}, a {type(value).__name__} that may change")


def _as_key(value: object) -> Hashable:
    key: Hashable = value
    return key


def _check(instruction: dis.Instruction, outside: Collection[str]) -> None:
    """Refuse an instruction that may have an effect or depend on more than values."""
    name, kind = instruction.argval, kind_of(instruction.opname)
    if kind & OUTSIDE_STORES:
        raise NotTraceableError(f"its instruction {instruction.opname} may have an effect")
    if Kind.BINDS_CELL in kind and name in outside:
        raise NotTraceableError(f"it assigns to {name!r} of an enclosing function")
    if Kind.READS_ATTRIBUTE in kind and name in HIDDEN_STATE:
        raise NotTraceableError(f"it reads .{name}, which differs for a compiled graph")
