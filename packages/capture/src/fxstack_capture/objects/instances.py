"""Bare instances of arbitrary classes: instances made by C code, without running code of the program."""

from __future__ import annotations

import gc
import struct
import sys
import types
from pathlib import Path
from typing import Any

import torch

from fxstack_capture import native
from fxstack_capture.native.class_flags import flags_of, is_heap_type
from fxstack_capture.standard_library import is_of_standard_library

_mro = type.__dict__["__mro__"].__get__


_COLLECTED = 1 << 14  # Py_TPFLAGS_HAVE_GC
"""The flag of types whose objects the garbage collector tracks.

Only a tracked object can be marked as finalized.
"""


def has_finalizer(cls: type) -> bool:
    """Whether ``cls`` has a ``__del__`` written in Python."""
    return any(type(base.__dict__.get("__del__")) is types.FunctionType for base in _mro(cls))


def has_visible_finalizer(cls: type) -> bool:
    """Whether the program wrote the ``__del__`` of ``cls``. It may then observe when the method runs.

    Finalizers of torch and of the standard library have no visible effect.
    """
    finalizers = (base.__dict__.get("__del__") for base in _mro(cls))
    files = (fn.__code__.co_filename for fn in finalizers if type(fn) is types.FunctionType)
    return any(not (file.startswith(TORCH) or is_of_standard_library(file)) for file in files)


def finalized_class(values: dict[str, object]) -> type | None:
    """Return a class whose finalizer may run when a frame drops one of its arguments, or None.

    ``values`` maps the names of the arguments to their values. The driver runs such a frame in plain Python,
    because compiled code may drop an argument later and the program may observe the delay.
    """
    for value in values.values():
        if has_visible_finalizer(type(value)):
            return type(value)
        inner = _find_finalized_referent(value) if sys.getrefcount(value) <= _HELD_BY_FRAME else None
        if inner is not None:
            return inner
    return None


def _find_finalized_referent(holder: object) -> type | None:
    """Return the class of an object with a finalizer that only ``holder`` keeps alive. None without such an
    object.
    """
    parts = [] if isinstance(holder, _NEVER_FINALIZED) else gc.get_referents(holder)
    while parts:
        part = parts.pop()
        if has_visible_finalizer(type(part)):
            return type(part)
        inner = _find_finalized_referent(part) if sys.getrefcount(part) <= _HELD_ONCE else None
        if inner is not None:
            return inner
    return None


TORCH = str(Path(torch.__file__).parent) + "/"
"""The folder of torch."""
_HELD_ONCE = 3
"""The result of ``sys.getrefcount(x)`` if the variable ``x`` and one other object hold the object."""
_HELD_BY_FRAME = 4
"""The result of ``sys.getrefcount`` for an argument. The frame and the dictionary of its arguments hold it."""
_NEVER_FINALIZED = (int, float, complex, str, bytes, type, types.ModuleType, types.FunctionType, torch.Tensor)
"""Types whose referents are not searched. Their objects outlive the frame, or hold no objects of the program."""


def may_be_bare(cls: type) -> bool:
    """Whether a bare instance of ``cls`` can be made without its ``__del__`` ever running.

    Checked before an object is wrapped. If the finalizer of a proxy ran, it would have side effects that
    plain Python does not have.
    """
    return not has_finalizer(cls) or bool(native.AVAILABLE and flags_of(cls) & _COLLECTED)


def without_finalizer(proxy: object) -> None:
    """Prevent the ``__del__`` of a proxy from running. Called for every bare instance."""
    if has_finalizer(type(proxy)):
        native.mark_finalized(proxy)


def native_new(cls: type) -> tuple[Any, Any]:
    """Return the C type whose ``__new__`` makes instances of ``cls``, and this ``__new__``.

    Proxies are made by this function, so that no ``__new__`` of the program runs.
    """
    for base in _mro(cls):
        new = base.__dict__.get("__new__")
        if type(new) is types.BuiltinFunctionType:
            return base, new
    raise AssertionError(f"{cls} has no native __new__")


def dict_descriptor(cls: type) -> Any:
    """Return the C descriptor of ``__dict__``, or None if instances have no dictionary.

    A property called ``__dict__`` in a subclass is ignored.
    """
    for base in _mro(cls):
        descriptor = base.__dict__.get("__dict__")
        if type(descriptor) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            return descriptor
    return None


def raw_dict(obj: object) -> dict[str, Any]:
    """Return ``obj.__dict__`` through the C descriptor, without code of the program.

    The class must have the descriptor.
    """
    result: dict[str, Any] = dict_descriptor(type(obj)).__get__(obj)
    return result


def declares_slots(cls: type) -> bool:
    """Whether ``cls``, a class written in Python, declares ``__slots__``.

    Member descriptors do not prove it, because fields of C classes have member descriptors as well.
    """
    return is_heap_type(cls) and "__slots__" in cls.__dict__


def slots(cls: type) -> list[types.MemberDescriptorType]:
    """Return the descriptors of the ``__slots__`` members of ``cls`` and its bases."""
    members = []
    for base in _mro(cls):
        if declares_slots(base):
            members += [m for m in base.__dict__.values() if type(m) is types.MemberDescriptorType]
    return members


def is_bare(cls: type) -> bool:
    """Whether ``object.__new__(cls)`` makes complete instances. Such a class can have proxies and can be
    rebuilt.

    For a C type without a constructor the call raises. Other C types have state besides attributes and slots.
    """
    if _has_state_of_c(cls):
        return False
    try:
        without_finalizer(object.__new__(cls))
    except TypeError:
        return False
    return True


def _has_state_of_c(cls: type) -> bool:
    """Whether instances have memory for state besides a dictionary, weak references and slots."""
    while cls is not object:
        base: Any = cls.__base__
        if declares_slots(cls):  # counts the memory of slots even if the program has rebound their names
            cls = base
            continue
        pointers = int(cls.__dictoffset__ > 0 >= base.__dictoffset__)
        pointers += bool(cls.__weakrefoffset__ > 0 >= base.__weakrefoffset__)
        if cls.__basicsize__ - base.__basicsize__ > pointers * _POINTER:
            return True
        cls = base
    return False


_POINTER = struct.calcsize("P")
