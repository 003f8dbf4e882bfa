"""The global names that a torch operator written in Python reads while the operator runs.

For example, ``F.relu`` reads ``torch.relu``. Such an operator is one node of a graph, so the interpreter does
not run its bytecode. The bytecode names the globals, and the attributes of modules, that the operator loads.
The search continues into each function of torch that is found there. Modules that run only for
``__torch_function__`` overrides or for warnings are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

from fxstack_interchange.bytecode import Kind, name_loads

_NOT_FOLLOWED = frozenset({"torch.overrides", "torch._jit_internal", "warnings", "typing"})
_KINDS = (FunctionType, BuiltinFunctionType, ModuleType, type)


@cache
def _chains(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """Return the chains of names that the code loads: a global name, then attributes of the global."""
    found: dict[tuple[str, ...], None] = {}
    for load in name_loads(code):
        if load.kind is Kind.READS_GLOBAL:
            attributes = range(len(load.attributes) + 1)
            found.update(dict.fromkeys((load.name, *load.attributes[:end]) for end in attributes))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.update(dict.fromkeys(_chains(constant)))
    return tuple(found)


def _read(fn: FunctionType) -> Iterator[tuple[dict[str, object], str, object]]:
    for chain in _chains(fn.__code__):
        namespace = fn.__globals__
        for name in chain:
            if name not in namespace:  # the name is a builtin
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
    """Return ``fn`` with its callees, and the names that they read as (namespace, name, definition)."""
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
