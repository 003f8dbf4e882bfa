"""The class of a stand-in for a tensor of a user's class: a fake that torch's C code takes for one of that class.

``isinstance`` and ``super()`` in C see the user's class through ``__class__``, and torch finds a ``__torch_function__``
to call, ordered as among the user's classes, wherever the user's class has one that is not disabled. It comes back
to the tracer that is at work, which interprets the user's.
"""

from __future__ import annotations

import types
from contextvars import ContextVar
from functools import cache
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

import torch

from fxstack_capture import torch_compat
from fxstack_capture.torch_compat import FakeTensor


class AskedByTorch(Protocol):
    """Who answers torch's own calls of ``__torch_function__`` of a fake class."""

    def asked_by_torch(self, *args: Any, **kwargs: Any) -> Any: ...


CURRENT: ContextVar[AskedByTorch] = ContextVar("CURRENT")
"""Who interprets the user's ``__torch_function__``: set while torch's C code is asked for one."""

TORCH_CLASSES: frozenset[type] = frozenset(
    {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, torch_compat.TensorBase, object}
)
"""Classes whose attributes are torch's own."""

_DISABLED = torch_compat.disabled_torch_function_impl
_NOT_FOLLOWED = ("__setattr__", "__delattr__", "__getattribute__", "__del__")
_set_class = object.__dict__["__class__"].__set__
_made: WeakKeyDictionary[type, dict[bool, type[FakeTensor]]] = WeakKeyDictionary()
"""By the user's class and by whether it overrides, which may change."""


def shown_class(tensor: torch.Tensor) -> type | None:
    """The user's class that a stand-in is of; None for a plain tensor."""
    return getattr(type(tensor), "_fxstack_shown", None)


def overrides(cls: type) -> bool:
    """Whether torch calls a ``__torch_function__`` for tensors of this class."""
    return getattr(cls, "__torch_function__", _DISABLED) is not _DISABLED


def is_users(cls: type, name: str) -> bool:
    """Whether a class written by a user is the first along the MRO to have ``name``."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base not in TORCH_CLASSES
    return False


def redefines(cls: type) -> bool:
    """Whether a user's class has methods in place of torch's, which operators of a graph would call."""
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
    """Whether torch reports access to this attribute of a class to ``__torch_function__``."""
    return isinstance(raw, types.GetSetDescriptorType) and issubclass(
        raw.__objclass__, torch_compat.TensorBase
    )


def why_not_followed(cls: Any) -> str | None:
    """What about a class of tensors tracing has no exact model of; None if it can be followed."""
    for base in cls.__mro__:
        if base in TORCH_CLASSES:
            continue
        own = vars(base)
        if base.__module__.split(".", 1)[0] == "torch" and base.__module__ != "torch.nn.parameter":
            return "is torch's own"
        for name in _NOT_FOLLOWED:
            if name in own:
                return f"defines {name}"
        if any(type(value) is types.MemberDescriptorType for value in own.values()):
            return "has __slots__"
        function = own.get("__torch_function__", _DISABLED)
        if function is not _DISABLED and type(function) is not classmethod:
            return "defines __torch_function__ that is no classmethod"
    if cls.__torch_dispatch__ is not torch_compat.disabled_torch_dispatch_impl:
        return "defines __torch_dispatch__"
    if issubclass(cls, torch.nn.parameter.UninitializedTensorMixin):
        return "has no data yet"
    return "has a metaclass" if type(cls) not in _METACLASSES else None


_METACLASSES = (type(torch.Tensor), type(torch.nn.Parameter))


def show(fake: torch.Tensor, cls: type) -> None:
    """Let a stand-in be of the user's class ``cls``."""
    _set_class(fake, _fake_class(cls))


def disguise(wrapper: torch.Tensor, cls: type) -> None:
    """Let a wrapper subclass of class ``cls`` be of a class that asks us, and that ``become`` can undo."""
    if any("__slots__" in vars(base) for base in cls.__mro__ if base not in TORCH_CLASSES):
        _set_class(wrapper, _with_slots(cls))
    else:
        show(wrapper, cls)


class _Unannounced:
    """``__init_subclass__`` of the program does not hear of a class that has this among its bases."""

    __slots__ = ()

    def __init_subclass__(cls, **_keywords: object) -> None:
        pass


@cache
def _with_slots(cls: type) -> type:
    """A class of the memory layout of ``cls``, which lets tensors of that class change to it."""
    result: type = type(cls)(cls.__name__, (_Unannounced, cls), {"__slots__": (), **_namespace(cls)})
    return result


def _namespace(cls: type, *, asks: bool = True) -> dict[str, Any]:
    return {
        "__class__": property(lambda _self: cls),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "_fxstack_shown": cls,
        "__torch_function__": classmethod(_ask) if asks else _DISABLED,
    }


def become(tensor: torch.Tensor, cls: type) -> None:
    """Let a tensor be of class ``cls`` itself."""
    _set_class(tensor, cls)


def hide(fake: FakeTensor) -> None:
    """Make a stand-in an ordinary fake again."""
    _set_class(fake, FakeTensor)


def _fake_class(cls: type) -> type[FakeTensor]:
    known = _made.setdefault(cls, {})
    asks = overrides(cls)
    made = known.get(asks)
    if made is None:
        bases = tuple(
            _fake_class(base)
            for base in cls.__bases__
            if base not in TORCH_CLASSES and issubclass(base, torch.Tensor)
        )
        new_class = type(cls.__name__, bases or (FakeTensor,), _namespace(cls, asks=asks))
        made = known[asks] = cast("type[FakeTensor]", new_class)
    return made


def _ask(cls: Any, func: Any, kinds: Any, *call: Any) -> Any:
    """What torch calls; ``call`` is what it passes of the arguments and keywords."""
    shown = tuple(getattr(kind, "_fxstack_shown", kind) for kind in kinds)
    return CURRENT.get().asked_by_torch(cls._fxstack_shown, func, shown, call)
