"""Arguments of an ``autograd.Function`` that no node can hold: functions, and objects with attributes.

A function from outside is a part of the node's target. An object from outside is made again: an instance of
its class with the attributes that the methods read in the dry run. Guards cover these attributes. Tensors
among them are operands of the node. An object of the trace breaks the graph, because the dry run may have
changed it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.native.class_flags import is_heap_type
from fxstack_capture.objects.instances import has_finalizer, is_bare
from fxstack_capture.torch_side.recording.constants import is_plain
from fxstack_capture.torch_side.recording.graph import SYMBOLIC
from fxstack_capture.torch_side.recording.protocol import TracerProtocol


@dataclass(frozen=True, slots=True)
class Operand:
    """The template of a tensor or dynamic number: its position among the additional operands of the node."""

    index: int


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The template of an instance of ``cls``, with names and templates of its attributes."""

    cls: type
    attributes: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Named:
    """The template of a named tuple of class ``cls``."""

    # torch.fx prints a named tuple as text that it cannot parse.
    cls: type
    items: tuple[Any, ...]


class Templates:
    """Makes the templates of arguments. ``operands`` are the tensors and dynamic numbers in the templates."""

    def __init__(self, tracer: TracerProtocol) -> None:
        self._tracer = tracer
        self.operands: list[Any] = []

    def of(self, value: Any) -> Any:
        """Return the template of ``value``, from which ``make`` makes the value. Break the graph if there is
        none.
        """
        if isinstance(value, (torch.Tensor, *SYMBOLIC)):
            self.operands.append(value)
            return Operand(len(self.operands) - 1)
        if type(value) in (list, tuple):
            return type(value)(map(self.of, value))
        if is_plain(value):
            return value
        if is_named_tuple(value) and self._tracer.trace.objects.is_preexisting(type(value)):
            return Named(type(value), tuple(map(self.of, value)))
        if is_function(value):
            return self._of_function(value)
        if is_object(value) and self._tracer.trace.objects.is_preexisting(value):
            return Rebuilt(type(value), tuple(self._attributes(value)))
        raise _refusal(value)

    def _attributes(self, value: object) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of the attributes that the methods have read in the dry run, and of all lists."""
        # The methods may have read single items of a list, without reading the whole list.
        objects: Any = self._tracer.trace.objects
        before = vars(objects.original_of(value))
        lists = (name for name, attribute in before.items() if type(attribute) is list)
        for name in dict.fromkeys((*vars(value), *lists)):
            with suppress(AttributeError):  # the program has deleted the attribute
                yield name, self.of(objects.load_attr(value, name))

    def _of_function(self, function: object) -> Any:
        """Return the function itself, guarded by identity. Break the graph for a function made in the trace."""
        objects: Any = self._tracer.trace.objects
        objects.recreated.pin((function,))
        if type(function) is FunctionType and not objects.is_preexisting(function):
            raise _refusal(function)
        return function


def is_function(value: object) -> bool:
    """Return whether the value is a function. A method bound to a tensor does not count, because a node can
    hold it.
    """
    if type(value) is BuiltinFunctionType:
        return not isinstance(value.__self__, torch.Tensor)
    return type(value) is FunctionType


def is_named_tuple(value: object) -> bool:
    """Return whether the value is an instance of a named tuple class."""
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def is_object(value: object) -> bool:
    """Return whether the value is an instance whose whole state is its ``__dict__``."""
    cls = type(value)
    is_python_class = is_heap_type(cls) and cls.__new__ is object.__new__
    return is_python_class and is_bare(cls) and not has_finalizer(cls) and hasattr(value, "__dict__")


def make(template: Any, operands: Sequence[Any]) -> Any:
    """Return the value that ``template`` describes. Called when the node runs.

    ``operands`` are the additional operands of the node.
    """
    if type(template) is Operand:
        return operands[template.index]
    if type(template) in (list, tuple):
        return type(template)(make(part, operands) for part in template)
    if type(template) is Named:
        return tuple.__new__(template.cls, (make(part, operands) for part in template.items))
    if type(template) is not Rebuilt:
        return template
    instance: Any = object.__new__(template.cls)
    instance.__dict__.update((name, make(part, operands)) for name, part in template.attributes)
    return instance


def _refusal(value: object) -> BaseException:
    """Return the graph break for an argument without a template."""
    kind = type(value)
    text = f"an autograd.Function with an argument of {kind.__module__}.{kind.__qualname__}"
    return graph_break("unsupported-call", text)
