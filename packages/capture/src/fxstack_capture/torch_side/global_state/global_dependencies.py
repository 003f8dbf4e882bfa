"""What torch's operators that are written in Python read of modules as they run: ``F.relu`` calls ``torch.relu``, and so on.

They are one node of a graph, so nobody interprets them. Their code says which global names they load, and which attributes
of modules; the functions that it finds there are followed as far as they are torch's. What only runs where a tensor overrides
torch's functions, or warns, is left out.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from functools import cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

_LOADS_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_NOT_FOLLOWED = frozenset({"torch.overrides", "torch._jit_internal", "warnings", "typing"})
_KINDS = (FunctionType, BuiltinFunctionType, ModuleType, type)


@cache
def _chains(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """The names that code loads: a global, and the attributes that are taken of it at once."""
    found: dict[tuple[str, ...], None] = {}
    chain: tuple[str, ...] = ()
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            chain = (instruction.argval,)
        elif chain and instruction.opname in _LOADS_ATTRIBUTE:
            chain = (*chain, instruction.argval)
        else:
            chain = ()
        if chain:
            found[chain] = None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.update(dict.fromkeys(_chains(constant)))
    return tuple(found)


def _read(fn: FunctionType) -> Iterator[tuple[dict[str, object], str, object]]:
    for chain in _chains(fn.__code__):
        namespace = fn.__globals__
        for name in chain:
            if name not in namespace:  # a builtin
                break
            value = namespace[name]
            if isinstance(value, _KINDS):
                yield namespace, name, value
            if type(value) is not ModuleType:
                break
            namespace = value.__dict__


def global_dependencies(
    fn: FunctionType,
) -> tuple[list[FunctionType], list[tuple[dict[str, object], str, object]]]:
    """The functions that run with ``fn``, itself included, and what they read: (namespace, name, definition)."""
    functions, reads = [fn], {}
    seen = {fn}
    for function in functions:
        for namespace, name, value in _read(function):
            reads[id(namespace), name] = namespace, name, value
            if isinstance(value, FunctionType) and value not in seen and _is_followed(value):
                seen.add(value)
                functions.append(value)
    return functions, list(reads.values())


def _is_followed(fn: FunctionType) -> bool:
    module = fn.__module__ or ""
    return module.partition(".")[0] == "torch" and module not in _NOT_FOLLOWED
