"""Classes of fakes for tensors of a user's class. Torch treats such a fake as an instance of the user's
class.

``isinstance`` and ``super()`` in C find the user's class through ``__class__``. If the user's class has a
``__torch_function__`` that is not disabled, the fake class also has one. It calls the current tracer, which
interprets the user's ``__torch_function__``. The inheritance between fake classes is the same as between the
user's classes.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch

from fxstack_capture import torch_compat
from fxstack_capture.torch_compat import FakeTensor

INTERPRETED: ContextVar[Callable[[type, object, tuple[type, ...], tuple[Any, ...]], Any]] = ContextVar(
    "INTERPRETED"
)
"""The function that interprets the user's ``__torch_function__`` during a trace (``Overrides.call_from_c``)."""

TORCH_CLASSES: frozenset[type] = frozenset(
    {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, torch_compat.TensorBase, object}
)
"""The classes whose attributes are torch's own."""

_DISABLED = torch_compat.disabled_torch_function_impl
_NOT_FOLLOWED = ("__setattr__", "__delattr__", "__getattribute__", "__del__")
_set_class = object.__dict__["__class__"].__set__
_fake_classes: WeakKeyDictionary[type, dict[bool, type[FakeTensor]]] = WeakKeyDictionary()
"""Maps the user's class, and the result of ``overrides`` for it, to the fake class. The result may change."""


def shown_class(tensor: torch.Tensor) -> type | None:
    """Return the user's class of a fake. None for a plain tensor."""
    return getattr(type(tensor), "_fxstack_shown", None)


def overrides(cls: type) -> bool:
    """Return whether torch calls a ``__torch_function__`` for instances of ``cls``."""
    return getattr(cls, "__torch_function__", _DISABLED) is not _DISABLED


def is_users(cls: type, name: str) -> bool:
    """Return whether a user's class defines ``name``. The first class in the MRO that has the name decides."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base not in TORCH_CLASSES
    return False


def redefines(cls: type) -> bool:
    """Return whether a user's class replaces methods of ``torch.Tensor`` that operators of a graph would
    call.
    """
    return any(
        name in _TENSOR_NAMES and name not in _CALLED_BY_NO_GRAPH
        for base in cls.__mro__
        if base not in TORCH_CLASSES
        for name in vars(base)
    )


_TENSOR_NAMES = frozenset(dir(torch.Tensor))
_CALLED_BY_NO_GRAPH = frozenset(dir(object)) - {
    "__eq__",
    "__ne__",
    "__lt__",
    "__le__",
    "__gt__",
    "__ge__",
} | {
    *("__module__", "__dict__", "__weakref__", "__torch_function__", "__torch_dispatch__"),
    *("__deepcopy__", "__len__", "__iter__", "__bool__", "__annotations__"),
}


def is_tensor_getset(raw: object) -> bool:
    """Return whether ``raw`` is an attribute of torch's C class. ``__torch_function__`` sees each access to
    it.
    """
    return isinstance(raw, types.GetSetDescriptorType) and issubclass(
        raw.__objclass__, torch_compat.TensorBase
    )


def unsupported_reason(cls: Any) -> str | None:
    """Return why a trace does not support a tensor class, as a clause after "which". None if it does."""
    for base in cls.__mro__:
        if base in TORCH_CLASSES:
            continue
        namespace = vars(base)
        if base.__module__.split(".", 1)[0] == "torch" and base.__module__ != "torch.nn.parameter":
            return "is torch's own"
        for name in _NOT_FOLLOWED:
            if name in namespace:
                return f"defines {name}"
        if any(type(value) is types.MemberDescriptorType for value in namespace.values()):
            return "has __slots__"
        function = namespace.get("__torch_function__", _DISABLED)
        if function is not _DISABLED and type(function) is not classmethod:
            return "defines __torch_function__ that is no classmethod"
    if cls.__torch_dispatch__ is not torch_compat.disabled_torch_dispatch_impl:
        return "defines __torch_dispatch__"
    if issubclass(cls, torch.nn.parameter.UninitializedTensorMixin):
        return "has no data yet"
    return "has a metaclass" if type(cls) not in _METACLASSES else None


_METACLASSES = (type(torch.Tensor), type(torch.nn.Parameter))


def show(fake: torch.Tensor, cls: type) -> None:
    """Change the class of a fake to the fake class of ``cls``, a user's class."""
    _set_class(fake, _fake_class(cls))


def disguise(wrapper: torch.Tensor, cls: type) -> None:
    """Change the class of a wrapper to a class whose ``__torch_function__`` calls the tracer.

    The function ``become`` undoes the change.
    """
    if any("__slots__" in vars(base) for base in cls.__mro__ if base not in TORCH_CLASSES):
        _set_class(wrapper, _with_slots(cls))
    else:
        show(wrapper, cls)


class _Unannounced:
    """A base class that stops the program's ``__init_subclass__``. It must not see the tracer's classes."""

    __slots__ = ()

    def __init_subclass__(cls, **_keywords: object) -> None:
        pass


@cache
def _with_slots(cls: type) -> type:
    """Return a subclass of ``cls`` with the memory layout of ``cls``."""
    # CPython allows an assignment to ``__class__`` only between classes of the same memory layout.
    result: type = type(cls)(cls.__name__, (_Unannounced, cls), {"__slots__": (), **_namespace(cls)})
    return result


def _namespace(cls: type, *, is_overriding: bool = True) -> dict[str, Any]:
    """Return the class attributes by which torch and the program take a class for ``cls``."""
    return {
        "__class__": property(lambda _self: cls),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "_fxstack_shown": cls,
        "__torch_function__": classmethod(_call_interpreted) if is_overriding else _DISABLED,
    }


def become(tensor: torch.Tensor, cls: type) -> None:
    """Change the class of a tensor to ``cls``, for example to undo ``disguise``."""
    _set_class(tensor, cls)


def hide(fake: FakeTensor) -> None:
    """Change the class of a fake back to ``FakeTensor``. Called when the trace ends."""
    _set_class(fake, FakeTensor)


def _fake_class(cls: type) -> type[FakeTensor]:
    """Return the fake class of a user's class. Its bases are the fake classes of the user's bases."""
    variants = _fake_classes.setdefault(cls, {})
    is_overriding = overrides(cls)
    fake_class = variants.get(is_overriding)
    if fake_class is None:
        bases = tuple(
            _fake_class(base)
            for base in cls.__bases__
            if base not in TORCH_CLASSES and issubclass(base, torch.Tensor)
        )
        new_class = type(cls.__name__, bases or (FakeTensor,), _namespace(cls, is_overriding=is_overriding))
        fake_class = variants[is_overriding] = cast("type[FakeTensor]", new_class)
    return fake_class


def _call_interpreted(cls: Any, func: Any, kinds: Any, *call: Any) -> Any:
    """The ``__torch_function__`` of a fake class. ``call`` has the arguments and keywords that torch passes."""
    shown = tuple(getattr(kind, "_fxstack_shown", kind) for kind in kinds)
    return INTERPRETED.get()(cls._fxstack_shown, func, shown, call)
