"""Rules for constants of the replacement: immutable objects, and objects that are compared by identity."""

from __future__ import annotations

import ast
import enum
import re
import types
import typing
from collections.abc import Callable

import torch

from fxstack_capture import native, torch_compat
from fxstack_capture.emit.errors import CannotRebuildError
from fxstack_capture.emit.rebuild.rebuilder import Rebuilder, Rule
from fxstack_capture.trace.constants import OF_THE_INTERPRETER
from fxstack_capture.trace.object_records import Recipe


def constant(rebuilder: Rebuilder, obj: object) -> ast.expr:
    """Rebuild an object as the object itself, which the replacement holds as a constant."""
    return rebuilder.constant(obj, getattr(obj, "__name__", None) or type(obj).__name__)


def class_object(rebuilder: Rebuilder, obj: type) -> ast.expr:
    """Rebuild a class as a constant.

    A class made in the trace is made again from its recipe (the recorded factory call). Raises
    CannotRebuildError if such a class has no recipe.
    """
    # A class made in the frame is a new class in each call, so it cannot be a constant.
    objects = rebuilder.trace.objects
    if objects.is_new(obj):
        recipe = objects.recipes.of(obj)
        if recipe is not None:
            return _recreate(rebuilder, obj, recipe)
        detail = f"class {obj.__qualname__}, which was created in the compiled code"
        raise CannotRebuildError(detail, objects.made_at(obj))
    return rebuilder.constant(obj, obj.__name__)


def _recreate(rebuilder: Rebuilder, cls: type, recipe: Recipe) -> ast.expr:
    """Rebuild a class by a call of its factory with the recorded arguments. No code of the factory is
    compiled.
    """
    make = native.Disabled(recipe.function) if native.AVAILABLE else recipe.function
    values = [rebuilder.expr(value) for value in recipe.args]
    named = [ast.keyword(name, rebuilder.expr(value)) for name, value in recipe.kwargs.items()]
    function = rebuilder.constant(make, recipe.function.__name__)
    return rebuilder.assign(ast.Call(function, values, named), cls.__name__)


def refuse(_: Rebuilder, obj: object) -> ast.expr:
    """Raise CannotRebuildError. This is the rule of classes whose instances cannot be rebuilt."""
    raise CannotRebuildError(f"an object of type {type(obj).__module__}.{type(obj).__qualname__}")


_CONSTANTS: tuple[type, ...] = (
    types.ModuleType,
    types.CodeType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.GenericAlias,
    types.UnionType,
    type(NotImplemented),
    re.Pattern,
    torch.dtype,
    *OF_THE_INTERPRETER,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.qscheme,
    torch.finfo,
    torch.iinfo,
    torch_compat.OpOverload,
    torch_compat.OpOverloadPacket,
    type(typing.Any),
    type(typing.Union[int, str]),  # noqa: UP007 - the class of the object is wanted
    type(typing.List[int]),  # noqa: UP006
    typing.TypeVar,
    typing.ForwardRef,
)

_REFUSED = (
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.FrameType,
    types.TracebackType,
    memoryview,
)

RULES: dict[type, Rule] = {
    **dict.fromkeys(_CONSTANTS, constant),
    **dict.fromkeys(_REFUSED, refuse),
    type: class_object,
}

# Classes that are recognised by their base classes.
FAMILIES: tuple[tuple[Callable[[type], bool], Rule], ...] = (
    (lambda cls: issubclass(cls, type), class_object),
    (lambda cls: issubclass(cls, enum.Enum), constant),
    (lambda cls: issubclass(cls, types.ModuleType), constant),
)
