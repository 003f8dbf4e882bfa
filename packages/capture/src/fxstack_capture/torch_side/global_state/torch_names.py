"""Guards on torch's names that a graph uses.

The graph refers to torch by name in four ways. An operator (``x + 1``) calls a special method of
``torch.Tensor``. A method node contains the name of a method. A function node is printed under the function's
qualified name. A torch function written in Python reads global names. The trace guards all these names as if
the program had read them. Therefore a replacement (``torch.Tensor.__add__ = f``,
``mock.patch("torch.relu")``) invalidates the entry.

A torch function written in Python is one node of a graph, so the interpreter does not run its bytecode.
``global_dependencies`` finds the global names in its bytecode, and continues in each function of torch that
it finds. For example, ``F.relu`` reads ``torch.relu``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import BuiltinFunctionType, CodeType, FunctionType, GetSetDescriptorType, ModuleType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.objects.kinds.functions import guard_part
from fxstack_capture.sources import pinned
from fxstack_capture.torch_compat import get_qualified_name as _get_qualified_name
from fxstack_capture.torch_side.global_state.import_snapshot import is_original, is_original_method
from fxstack_capture.torch_side.recording.graph import Target
from fxstack_capture.trace.late_guards.class_reads import SPECIAL_METHODS, raw_lookup
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Trace
from fxstack_interchange.bytecode import Kind, name_loads

_CLASSES = (torch.Tensor, torch.nn.Parameter)

_DECIDING = tuple(
    name
    for name in {*SPECIAL_METHODS, *dir(torch.Tensor)} - {"__repr__", "__str__", "__format__"}
    if name in SPECIAL_METHODS or isinstance(raw_lookup(torch.Tensor, name), (property, GetSetDescriptorType))
)


def replaced_method() -> str | None:
    """Return the name of a special method or property of ``torch.Tensor`` that the program has replaced, or
    None.
    """
    # A graph of operators cannot express the replaced behaviour.
    for name in _DECIDING:
        if not is_original_method(name):
            return name
    return None


class NamesOfTorch:
    """The guards on torch's names of one trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: set[Any] = set()
        self._usual: dict[FunctionType, bool] = {}

    @property
    def _objects(self) -> Any:
        """Return the object model of the trace."""
        return self._trace.objects

    def guard_operators(self) -> None:
        """Guard the special methods and properties of the tensor classes. Called before the first torch call
        of a trace.
        """
        for cls in _CLASSES:
            self._objects.classes.note(cls, _DECIDING)

    def guard_target(self, target: Target) -> None:
        """Guard the name by which the graph refers to ``target``. Called before each node is added."""
        if target.target in self._known:
            return
        self._known.add(target.target)
        if target.op == "call_method":
            self._guard_method(str(target.target))
        elif type(target.target) in (BuiltinFunctionType, FunctionType):
            self._guard_function(target.target)

    def _guard_method(self, name: str) -> None:
        """Guard the method ``name`` of ``torch.Tensor``. Break the graph if it is not torch's own."""
        self._objects.classes.note(torch.Tensor, (name,))
        if not is_original_method(name):
            raise graph_break("unsupported-call", f"Tensor.{name}, whose name stands for another,")

    def _guard_function(self, fn: object) -> None:
        """Guard the qualified name of a torch function. Break the graph if the name leads to another object."""
        if (getattr(fn, "__module__", None) or "").partition(".")[0] != "torch":
            return
        name = _get_qualified_name(fn)
        if self._resolve(name) not in (fn, None):
            raise graph_break("unsupported-call", f"{name}, whose name stands for another,")

    def _resolve(self, name: str) -> Any:
        """Return the object that a dotted name of torch refers to. Guard each step of the name.

        Return None if the name leads through an object that is neither a module nor a class.
        """
        value: Any = torch
        for part in name.split(".")[1:]:
            if isinstance(value, type):
                self._objects.classes.note(value, (part,))
                value = raw_lookup(value, part)
            elif type(value) is ModuleType:
                value = self._objects.namespace(value.__dict__).get(part)
            else:
                return None
        return None if value is ABSENT else value

    def is_usual(self, fn: FunctionType) -> bool:
        """Return whether a torch function, and the names that it reads, are unchanged since the import. Guard
        them.

        Such a function may become one node.
        """
        usual = self._usual.get(fn)
        if usual is None:
            usual = self._usual[fn] = self._guard_dependencies(fn)
        return usual

    def _guard_dependencies(self, fn: FunctionType) -> bool:
        """Guard the function and its callees. Return whether all names that they read are torch's own."""
        functions, reads = global_dependencies(fn)
        for function in functions:
            source = pinned(function, function.__qualname__)
            for part in ("__code__", "__defaults__", "__kwdefaults__"):
                if getattr(function, part) is not None:
                    guard_part(self._objects, function, part, source)
        for namespace, name, _ in reads:
            self._objects.namespace(namespace).get(name)
        return all(is_original(*read) for read in reads)


_NOT_FOLLOWED = frozenset({"torch.overrides", "torch._jit_internal", "warnings", "typing"})
"""Modules that run only for ``__torch_function__`` overrides or for warnings."""
_KINDS = (FunctionType, BuiltinFunctionType, ModuleType, type)


@cache
def _chains(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """Return the chains of names that the code loads: first a global name, then attributes of the global."""
    chains: dict[tuple[str, ...], None] = {}
    for load in name_loads(code):
        if load.kind is Kind.READS_GLOBAL:
            attributes = range(len(load.attributes) + 1)
            chains.update(dict.fromkeys((load.name, *load.attributes[:end]) for end in attributes))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            chains.update(dict.fromkeys(_chains(constant)))
    return tuple(chains)


def _read(fn: FunctionType) -> Iterator[tuple[dict[str, object], str, object]]:
    """Yield (namespace, name, definition) for each definition that a function reads by name."""
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
    """Return ``fn`` and its callees, and the names that they read as (namespace, name, definition)."""
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
    """Return whether ``global_dependencies`` continues in this function."""
    module = fn.__module__ or ""
    return module.partition(".")[0] == "torch" and module not in _NOT_FOLLOWED
