"""Rules of ``type``, ``isinstance`` and ``issubclass``."""

from __future__ import annotations

import abc
import types
from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.callers import plainly
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.rules import RULES
from fxstack_capture.interpreter.frame_rules import python_type_of
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.numpy_side.scalar import Scalar
from fxstack_capture.objects.protocols.abstract_classes import note_answers
from fxstack_capture.trace.constants import PLAIN_TYPES, is_constant_key
from fxstack_capture.trace.registry import NEW_CLASS_MARK
from fxstack_capture.trace.state import Args, Kwargs, Trace


def class_of(trace: Trace, value: Any) -> type:
    """Return the result of ``type(value)`` for the program, for example ``Tensor`` for a fake tensor."""
    if isinstance(value, torch.Tensor):
        return trace.torch.python_type(value)
    kind = type(value)
    if kind is Array or kind is Scalar:
        return type(value.example)
    return PLAIN_TYPES.get(kind) or python_type_of(value)


@RULES.rule(type)
def _type(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return the class that the program sees, or create a class."""
    if len(args) == 1 and not kwargs:
        return class_of(trace, args[0])
    if len(args) == 3:
        args = _with_module(trace, args)
        created = make_class(trace, type, args, kwargs)
        if not kwargs:
            _note_recipe(trace, created, args)
        return created
    return run(trace, type, args, kwargs)


def _with_module(trace: Trace, args: Args) -> tuple[Any, ...]:
    """Add ``__module__`` to the namespace of a new class. CPython takes its value from the calling frame."""
    _, bases, namespace = args
    caller = trace.interp.current_frame().globals
    if type(bases) is not tuple or type(namespace) is not dict or "__name__" not in caller:
        return args
    trace.objects.expand(namespace)
    if "__module__" in namespace or any(type(base) is not type for base in bases):
        return args
    return *args[:2], {**namespace, "__module__": caller["__name__"]}


def _note_recipe(trace: Trace, created: type, args: Args) -> None:
    """Record how the class can be made anew, so that it may leave the trace.

    In three cases, there is no recipe. Code of the program would run when the class is made. The class has
    slots, whose descriptors belong to one class. Or the class has ``__del__``: a graph must end before such a
    class is made.
    """
    if not args[2].keys().isdisjoint(("__slots__", "__del__")):
        return
    outside = type(created) is type and not any(map(trace.objects.is_new, created.__mro__[1:]))
    silent = not any("__init_subclass__" in vars(base) for base in created.__mro__[:-1])
    if outside and silent and all(map(_is_made_anew, args[2].values())):
        trace.objects.recipes.note(created, type, (*args[:2], dict(args[2])), {})


def _is_made_anew(value: object) -> bool:
    """Whether a value in the namespace of a class can be made again together with the class."""
    return is_constant_key(value) or (type(value) is types.FunctionType and value.__closure__ is None)


def make_class(trace: Trace, meta: type, args: Args, kwargs: Kwargs) -> type:
    """Create a class of the program with the metaclass ``meta``. ``args`` are name, bases and namespace.

    The namespace already consists of objects of the trace. Hooks of the class are interpreted.
    """
    trace.objects.expand(args[2])
    return new_class(trace, meta, args, kwargs)


def new_class(trace: Trace, maker: Callable[..., Any], args: Args, kwargs: Kwargs) -> type:
    """Call ``maker(..., namespace)``, which creates a class. Record the class as new.

    Hooks such as ``__set_name__`` get the class before this function returns. Therefore a mark in the
    namespace identifies the class until it is complete.
    """
    if not isinstance(args[-1], dict):
        plain: type = plainly(maker, args, kwargs)
        return plain
    marked = {**args[-1], NEW_CLASS_MARK: True}
    created: type = run(trace, maker, (*args[:-1], marked), kwargs)
    if NEW_CLASS_MARK in vars(created):
        type.__delattr__(created, NEW_CLASS_MARK)
    trace.objects.note_new(created)
    trace.objects.classes.forget(created)
    return created


@RULES.rule(type.__new__)
def _type_new(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> type:
    """Create a class for a metaclass written in Python."""
    if len(args) != 4:
        result: type = plainly(type.__new__, args, kwargs)
        return result
    trace.objects.expand(args[3])
    return new_class(trace, type.__new__, args, kwargs)


@RULES.unpacked(isinstance, count=(2, 2))
def _isinstance(trace: Trace, value: Any, classes: Any) -> Any:
    """Return the result of ``isinstance``, by the class that the program sees."""
    if type(value) is Scalar:
        value = value.example  # the result depends only on the class
    shown = trace.torch.python_type(value) if isinstance(value, torch.Tensor) else type(value)
    _note_bases(trace, shown)
    kind = type(value)
    if isinstance(value, torch.Tensor) or kind is Array or kind in PLAIN_TYPES:
        answer = _call_instance_check(trace, value, classes, PLAIN_TYPES.get(kind, shown))
        if answer is not None:
            return answer
    if isinstance(value, torch.Tensor):
        note_answers(trace.objects, shown, classes)
        return _tensor_isinstance(trace, value, classes)
    if kind is Array:
        note_answers(trace.objects, type(value.example), classes)
        return isinstance(value.example, classes)
    if kind in PLAIN_TYPES:
        plain = PLAIN_TYPES[kind]
        note_answers(trace.objects, plain, classes)
        return isinstance(plain(), classes)  # any number of this class gives the program's result
    if type(classes) is type or (type(classes) is tuple and all(type(c) is type for c in classes)):
        return isinstance(value, classes)
    return run(trace, isinstance, (value, classes), {})


def _tensor_isinstance(trace: Trace, value: torch.Tensor, classes: Any) -> bool:
    """Return the result of ``isinstance`` for a tensor, by the class that the program sees."""
    shown = trace.torch.python_type(value)
    if type(classes) is tuple:
        return any(_tensor_isinstance(trace, value, c) for c in classes)
    if isinstance(classes, types.UnionType):
        return any(_tensor_isinstance(trace, value, c) for c in classes.__args__)
    if classes is torch.nn.Parameter or classes is torch.nn.parameter.Parameter:
        return issubclass(shown, torch.nn.Parameter) or bool(getattr(value, "_is_param", False))
    if classes is torch.nn.Buffer:
        try:
            return bool(trace.torch.load_attr(value, "_is_buffer"))
        except AttributeError:
            return False
    if type(classes) is _LegacyType:
        return _is_legacy(value, classes)
    # A class may refuse the check. This error is the program's.
    if not isinstance(classes, type) or (shown is torch.Tensor and type(classes).__module__ == "typing"):
        return bool(plainly(isinstance, (_TENSOR, classes), {}))
    return bool(plainly(issubclass, (shown, classes), {}))


_TENSOR = torch.empty(0)


_LegacyType: Any = type(torch.FloatTensor)


def _is_legacy(value: torch.Tensor, cls: Any) -> bool:
    """Whether a tensor has the dtype, layout and device of a class such as ``torch.cuda.FloatTensor``.

    No tensor is a real instance of such a class.
    """
    device = "cuda" if cls.is_cuda else "cpu"
    return (value.dtype, value.layout, value.device.type) == (cls.dtype, cls.layout, device)


def _call_instance_check(trace: Trace, value: object, classes: object, shown: type) -> Any:
    """Call the ``__instancecheck__`` of a metaclass of the program, for a value that has a proxy.

    Return None if the metaclass has no such method.
    """
    members = classes.__args__ if isinstance(classes, types.UnionType) else classes
    if type(members) is tuple:
        if not any(_instance_check(trace, member) for member in members):
            return None
        return any(trace.calls.call(isinstance, (value, member), {}) for member in members)
    check = None if shown is classes else _instance_check(trace, classes)
    if check is None:
        return None
    return trace.calls.call(bool, (trace.calls.call(check, (classes, value), {}),), {})


def _instance_check(trace: Trace, cls: object) -> Any:
    """Return the Python ``__instancecheck__`` of the metaclass of ``cls``. None if the program defines none."""
    method = trace.objects.classes.lookup(type(cls), "__instancecheck__")
    if type(method) is not types.FunctionType or method is abc.ABCMeta.__dict__["__instancecheck__"]:
        return None
    return None if (method.__module__ or "").partition(".")[0] in ("torch", "typing") else method


@RULES.rule(type.__instancecheck__)
def _plain_instance_check(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return whether an object is an instance, without asking the metaclass. The class is that which the
    program sees.
    """
    if len(args) == 2 and isinstance(args[1], torch.Tensor) and isinstance(args[0], type):
        shown = trace.torch.python_type(args[1])
        return type.__subclasscheck__(args[0], shown)
    return run(trace, type.__instancecheck__, args, kwargs)


def _note_bases(trace: Trace, cls: object) -> None:
    """Guard the bases of a class. The answer depends on them."""
    if isinstance(cls, type):
        trace.objects.classes.note_bases(cls)


@RULES.rule(issubclass)
def _issubclass(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Return whether a class is a subclass, and guard its bases."""
    if args:
        _note_bases(trace, args[0])
    return run(trace, issubclass, args, kwargs)
