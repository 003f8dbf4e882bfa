"""Arguments of an ``autograd.Function`` that no node can hold: functions, and objects with tensors and settings in them.

A function from outside is part of what the node calls. An object from outside is made again, of its class, from the
attributes that the methods read when they were rehearsed: those are guarded, and tensors among them are operands of
the node. What was made in the trace may have been changed by the rehearsal, and ends the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.objects.class_flags import is_heap_type
from fxstack_capture.objects.instances import has_finalizer, is_bare
from fxstack_capture.torch_side.recording.constants import is_plain
from fxstack_capture.torch_side.recording.graph import SYMBOLIC
from fxstack_capture.torch_side.recording.protocol import TracerProtocol


@dataclass(frozen=True, slots=True)
class Operand:
    """The tensor or dynamic number at ``index`` of the further operands."""

    index: int


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """An object of ``cls`` with these attributes."""

    cls: type
    attributes: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A named tuple of ``cls``, which torch.fx writes as text that it cannot read."""

    cls: type
    items: tuple[Any, ...]


class Templates:
    """How arguments that are no values of a graph are made; ``operands`` are the tensors and dynamic numbers in them."""

    def __init__(self, tracer: TracerProtocol) -> None:
        self._tracer = tracer
        self.operands: list[Any] = []

    def of(self, value: Any) -> Any:
        """A description that ``make`` understands; GraphBreak where there is none."""
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
        """What was read, and lists, of which items may have been read without the whole."""
        objects: Any = self._tracer.trace.objects
        before = vars(objects.original_of(value))
        lists = (name for name, held in before.items() if type(held) is list)
        for name in dict.fromkeys((*vars(value), *lists)):
            with suppress(AttributeError):  # one that the program has deleted
                yield name, self.of(objects.load_attr(value, name))

    def _of_function(self, function: object) -> Any:
        objects: Any = self._tracer.trace.objects
        objects.recreated.pin((function,))
        if type(function) is FunctionType and not objects.is_preexisting(function):
            raise _refusal(function)
        return function


def is_function(value: object) -> bool:
    if type(value) is BuiltinFunctionType:
        return not isinstance(value.__self__, torch.Tensor)
    return type(value) is FunctionType


def is_named_tuple(value: object) -> bool:
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def is_object(value: object) -> bool:
    """Whether it is an instance whose state is its dictionary."""
    cls = type(value)
    is_python_class = is_heap_type(cls) and cls.__new__ is object.__new__
    return is_python_class and is_bare(cls) and not has_finalizer(cls) and hasattr(value, "__dict__")


def make(template: Any, operands: Sequence[Any]) -> Any:
    """The value that ``template`` describes."""
    if type(template) is Operand:
        return operands[template.index]
    if type(template) in (list, tuple):
        return type(template)(make(part, operands) for part in template)
    if type(template) is Named:
        return tuple.__new__(template.cls, (make(part, operands) for part in template.items))
    if type(template) is not Rebuilt:
        return template
    made: Any = object.__new__(template.cls)
    made.__dict__.update((name, make(part, operands)) for name, part in template.attributes)
    return made


def _refusal(value: object) -> BaseException:
    kind = type(value)
    text = f"an autograd.Function with an argument of {kind.__module__}.{kind.__qualname__}"
    return graph_break("unsupported-call", text)
