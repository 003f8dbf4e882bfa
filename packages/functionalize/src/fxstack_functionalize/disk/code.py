"""Describe Python code as JSON, equal in every process for equal code, so that it can be part of a key.

The description comes from bytecode and from everything that the bytecode loads from outside: constants,
functions of torch (identified by torch's version), and other functions that have a description. A function
that imports, assigns to globals or reads any other object has no description. The description of a custom
operator holds its schema and the functions that tracing calls. The kernels are left out: they are called when
the program runs.
"""

from __future__ import annotations

import builtins
import dis
import operator
import sys
from collections.abc import Collection
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial, reduce
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.code_reads import BUILTINS, TYPES, is_known, load, reads_of
from fxstack_functionalize.torch_compat import HigherOrderOperator, OpOverload, OpOverloadPacket
from fxstack_functionalize.torch_compat import custom_operators as custom_ops
from fxstack_functionalize.torch_compat import get_effect as _get_effect
from fxstack_interchange import SaveError
from fxstack_interchange.bytecode import Kind, kind_of
from fxstack_interchange.format.encoding.arguments import encode
from fxstack_interchange.format.literals import LITERAL_TYPES

# Limits: code that reads lists, sets or dictionaries has no description, because it may also write to them.

PACKAGES = frozenset(
    {"torch"} | {f"fxstack_{part}" for part in ("capture", "functionalize", "interchange", "partition")}
)
NAMESPACES = frozenset({"aten", "prims", "prim", "_operator"})
"""Namespaces of operators whose meaning follows from torch's version."""
REFUSED = Kind.BINDS_GLOBAL | Kind.IMPORTS | Kind.BUILDS_CLASS | Kind.UNKNOWN
READ_BUILTINS = (
    BUILTINS
    | {"getattr", "hasattr", "setattr", "object"}
    | {
        name
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }
)
OF_EVERY_CLASS = frozenset(
    {f"__{name}__" for name in ("module", "qualname", "doc", "dict", "weakref", "annotations")}
    | {"__firstlineno__", "__static_attributes__", "_backward_cls"}
)
"""Entries of a class namespace that Python or torch adds."""
REGISTERED_KEYS = frozenset(
    {
        "Meta",
        "Autograd[alias]",
        "CompositeExplicitAutograd[alias]",
        "ADInplaceOrView",
        "ADInplaceOrView (inactive)",
        "CPU",
        "CUDA",
    }
)
"""The dispatch keys that ``torch.library.custom_op`` registers for its kernels and functions."""


class CodeReader:
    """Describes values. The second description of the same value is the value's number."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._met: list[Any] = []

    def describe(self, value: object, name: str) -> Any:
        """Return JSON for the class and behaviour of ``value``. Errors mention ``name``.

        Raises:
            SaveError: if ``value`` has no description.
        """
        if id(value) in self._numbers:
            return {"again": self._numbers[id(value)]}
        if type(value) in LITERAL_TYPES:
            return encode(value)
        self._numbers[id(value)] = len(self._met)
        self._met.append(value)
        if isinstance(value, (list, tuple, set, frozenset, dict)):
            return self._container(value, name)
        if isinstance(value, slice):  # since Python 3.14 a slice can be a constant of code
            parts = (value.start, value.stop, value.step)
            return ["slice", *(self.describe(part, name) for part in parts)]
        if isinstance(value, (OpOverload, OpOverloadPacket, custom_ops.CustomOpDef)):
            return self._operators(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, partial):
            parts = (value.func, value.args, value.keywords)
            return ["partial", *(self.describe(part, name) for part in parts)]
        if isinstance(value, Enum):
            return [self.describe(type(value), name), value.name]
        if is_dataclass(value):
            kind: Any = type(value)
            if not kind.__dataclass_params__.frozen:
                raise SaveError(f"{name}, a record whose fields may change")
            members = [getattr(value, field.name) for field in fields(value)]
            return [self.describe(item, name) for item in (type(value), *members)]
        return self._function(value, name)

    def _container(self, value: Any, name: str) -> Any:
        """Describe a list, tuple, set or dict by its kind and its items. Raise SaveError for a subclass."""
        kind = type(value)
        if kind not in {list, tuple, set, frozenset, dict}:
            raise SaveError(f"{name}, a {kind.__name__} that may do anything")
        items = list(value.items()) if kind is dict else list(value)
        if kind in {set, frozenset}:
            # The order of a set differs between processes.
            return [kind.__name__, sorted((encode(item) for item in items), key=repr)]
        return [kind.__name__, [self.describe(item, name) for item in items]]

    def _function(self, value: object, name: str) -> Any:
        """Describe a function of torch by its name, any other function by its code, its defaults and the
        names it reads.

        Raise SaveError for a callable that may change.
        """
        if isinstance(value, HigherOrderOperator):
            return higher_order_name(value)
        if isinstance(value, BuiltinFunctionType) and _is_known_builtin(value):
            return ["builtin", str(value.__module__), value.__qualname__]
        if not isinstance(value, FunctionType):
            raise SaveError(f"{name}, a {type(value).__name__} that may change")
        known = name_in_torch(value)
        if known is not None and _is_of_package(value):
            return known
        described = [self._code(value.__code__)]
        given = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).items()]
        described += [self.describe(item, f"a default of {name}") for item in given]
        for read in dict.fromkeys(reads_of(value.__code__, _check)):
            loaded, path, _ = load(value, read, READ_BUILTINS, SaveError)
            if isinstance(loaded, (list, set, dict)):
                raise SaveError(f"{path}, a {type(loaded).__name__} that the function may write to")
            described.append([path, self.describe(loaded, path)])
        return ["function", described]

    def _code(self, code: CodeType) -> Any:
        """Return the fields of ``code`` that determine its behaviour: all fields except its position in a file."""
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        return [
            code.co_code.hex(),
            code.co_exceptiontable.hex(),
            [list(group) for group in names],
            list(counts),
            [
                self._code(item)
                if isinstance(item, CodeType)
                else self.describe(item, "a constant of a function")
                for item in code.co_consts
            ],
        ]

    def _class(self, value: type) -> Any:
        """Describe a class: a known type by its name, an ``autograd.Function`` by its members.

        Raise SaveError for any other.
        """
        if value in TYPES or getattr(builtins, value.__name__, None) is value:
            return ["type", value.__module__, value.__qualname__]
        known = name_in_torch(value)
        if known is not None:
            return known
        if not issubclass(value, torch.autograd.Function):
            raise SaveError(f"{value.__qualname__}, a class of the program's own")
        own = [base for base in value.__mro__ if base.__module__.partition(".")[0] != "torch"]
        return ["autograd.Function", [self._namespace(base) for base in own if base is not object]]

    def _namespace(self, cls: type) -> Any:
        found = sorted(item for item in vars(cls).items() if item[0] not in OF_EVERY_CLASS)
        return [[name, self._member(member, name)] for name, member in found]

    def _member(self, member: object, name: str) -> Any:
        """Describe one member of an ``autograd.Function``: a static method or class method by its function."""
        if isinstance(member, (staticmethod, classmethod)):
            return [type(member).__name__, self.describe(member.__func__, name)]
        return self.describe(member, name)

    def _operators(self, value: Any) -> Any:
        """Describe an operator that a graph calls: one overload, or all overloads of a packet."""
        if isinstance(value, custom_ops.CustomOpDef):
            return self._operator(value._opoverload)
        if isinstance(value, OpOverload):
            return self._operator(value)
        return [self._operator(getattr(value, name)) for name in value.overloads()]

    def _operator(self, op: OpOverload[..., Any]) -> Any:
        """Describe torch's overloads by their names, overloads of ``custom_op`` by their schemas and functions.

        Raise SaveError for other operators of the program, whose kernels cannot be read.
        """
        if op.namespace in NAMESPACES:
            return str(op)
        definition = custom_ops.OPDEFS.get(op._schema.name)
        if definition is None or definition._opoverload is not op:
            raise SaveError(f"{op} is an operator of the program's own, not made by custom_op")
        if definition._torch_dispatch_fns or op.py_kernels or not _is_plain(op):
            raise SaveError(f"{op} has registrations that a compiler follows")
        functions = (
            definition._abstract_fn,
            definition._setup_context_fn,
            definition._backward_fn,
            definition._vmap_fn,
        )
        described = [self.describe(function, str(op)) for function in functions]
        tags = sorted(map(str, op.tags))
        return ["operator", str(op._schema), tags, str(_get_effect(op)), described]


def _is_plain(op: OpOverload[..., Any]) -> bool:
    """Whether all registrations of ``op`` come from its ``custom_op`` definition."""
    lines = torch_compat.dispatch_dump(op._schema.name).splitlines()
    registered = [line.split(": registered at ", 1) for line in lines if ": registered at " in line]
    return all(
        key == "debug" or (key in REGISTERED_KEYS and place.startswith(f"{custom_ops.__file__}:"))
        for key, place in registered
    )


def _is_known_builtin(value: BuiltinFunctionType) -> bool:
    """Whether a builtin function always means the same under its name, for example ``len`` or ``operator.add``."""
    name = value.__name__
    if name in READ_BUILTINS and getattr(builtins, name, None) is value:
        return True
    return is_known(value) or getattr(operator, name, None) is value


def _check(instruction: dis.Instruction, outside: Collection[str]) -> None:
    """Raise SaveError for an instruction whose effect the key cannot describe.

    ``outside``: variables of enclosing functions. ``reads_of`` calls it for each instruction of a function.
    """
    kind = kind_of(instruction.opname)
    if kind & REFUSED:
        raise SaveError(f"a function with the instruction {instruction.opname}")
    if Kind.BINDS_CELL in kind and instruction.argval in outside:
        raise SaveError(f"a function that assigns to {instruction.argval!r} of an enclosing one")


def higher_order_name(target: HigherOrderOperator) -> str:
    """Return the name of a higher-order operator of torch.

    Raises:
        SaveError: if the operator is not torch's.
    """
    if not type(target).__module__.startswith("torch."):
        raise SaveError(f"{target} is an operator of the program's own")
    return f"higher-order {type(target).__module__}.{target.name()}"


def name_in_torch(target: Any) -> str | None:
    """Return the name of a function or class of torch or fxstack (their versions determine its code); None
    for other objects.
    """
    name, place = getattr(target, "__qualname__", ""), getattr(target, "__module__", None) or ""
    if not isinstance(target, (FunctionType, type)) or place.partition(".")[0] not in PACKAGES:
        return None
    found = reduce(lambda at, part: getattr(at, part, None), name.split("."), sys.modules.get(place))
    return f"{place}:{name}" if found is target else None


def _is_of_package(function: FunctionType) -> bool:
    """Whether the function's file is in the package of its module. A patched function may not be."""
    package = sys.modules[function.__module__.partition(".")[0]]
    return Path(function.__code__.co_filename).is_relative_to(Path(str(package.__file__)).parent)
