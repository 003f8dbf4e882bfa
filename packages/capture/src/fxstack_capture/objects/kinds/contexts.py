"""The ``ctx`` of an ``autograd.Function`` whose ``forward`` or ``backward`` runs as a root frame.

Each call has a new ``ctx``, so a ``ctx`` is guarded by its class. A ``ctx`` is its own proxy. Attributes are
read and written as for any instance. Four C attributes are special: they only keep the arguments of
``save_for_backward`` and the ``mark_...`` methods until ``forward`` returns. ``Objects.contexts`` records
writes to these attributes. The replacement code does the writes when the frame is left.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import AllDistinct, IdentityIs, LengthIs, TypeIs
from fxstack_capture.objects.instances import raw_dict
from fxstack_capture.sources import BuiltinAttr, InstanceDict, Item, Source
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Objects

CLASS: Final = torch.autograd.function.BackwardCFunction
_C_CLASS: Final = torch_compat.FunctionBase

_KEPT: Final = frozenset(getattr(_C_CLASS, n) for n in ("to_save", "non_differentiable", "dirty_tensors"))
"""C attributes that only hold a value until ``forward`` returns."""
_FLAG: Final = _C_CLASS.materialize_grads
"""The argument of ``ctx.set_materialize_grads``. This attribute cannot be read."""
_SAVED: Final = _C_CLASS.saved_tensors
_UNREADABLE: Final = frozenset(getattr(_C_CLASS, name) for name in ("saved_variables", "_raw_saved_tensors"))
"""C attributes that cannot be loaded. The load would unpack tensors, or return records of C++ that no guard
compares.
"""


def enter(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap a ``ctx`` as itself. Guard its class, and prepare lazy reads of its attributes."""
    objects.trace.guard(source, TypeIs(type(obj)))
    objects.registry.add_itself(obj, source)
    objects.add_instance_dict(obj, raw_dict(obj), {}, InstanceDict(source))
    objects.contexts[id(obj)] = {}
    return obj


def load(objects: Objects, raw: Any, obj: Any) -> Any:
    """Load a C attribute of a ``ctx``. ``raw`` is the descriptor of the attribute.

    Raises GraphBreak if the attribute cannot be guarded, for example if a hook unpacks ``saved_tensors``.
    """
    if raw.__name__ == "__dict__":
        return objects.instances[id(obj)].proxy
    if raw is _FLAG or raw.__name__ == "__class__":
        # The flag can only be written. Reading it raises the real error.
        return raw.__get__(obj)
    value = objects.contexts[id(obj)].get(raw, ABSENT)
    if value is not ABSENT:
        return value
    source = objects.source_of(obj)
    if raw in _UNREADABLE or source is None:
        raise graph_break("unsupported-object", f"{raw.__name__} of a {type(obj).__qualname__}")
    if raw is _SAVED:
        _demand_unpacked(objects, obj, source)
    return objects.enter(raw.__get__(obj), BuiltinAttr(source, raw.__name__))


def _demand_unpacked(objects: Objects, obj: Any, source: Source) -> None:
    """Guard that no saved tensor of the ``ctx`` has an unpack hook. Raises GraphBreak if a tensor has one."""
    # Reading ``saved_tensors`` calls the unpack hooks. A guard that read the attribute would call them as
    # well.
    saved = obj._raw_saved_tensors
    tensors_source = BuiltinAttr(source, "_raw_saved_tensors")
    guard = objects.trace.guard
    guard(tensors_source, LengthIs(len(saved)))
    for index, tensor in enumerate(saved):
        if tensor.unpack_hook is not None:
            raise graph_break("unsupported-object", "saved tensors that a hook unpacks")
        guard(BuiltinAttr(Item(tensors_source, index), "unpack_hook"), IdentityIs(None, id(None)))


def store(objects: Objects, raw: Any, obj: Any, value: object) -> None:
    """Write a C attribute of a ``ctx``, or delete the attribute if ``value`` is ABSENT.

    ``raw`` is the descriptor of the attribute. The real ``ctx`` is written when the frame is left. Raises
    GraphBreak for attributes that are neither in ``_KEPT`` nor ``_FLAG``.
    """
    if (raw in _KEPT and value is not ABSENT) or (raw is _FLAG and type(value) is bool):
        objects.contexts[id(obj)][raw] = value
        return
    text = f"storing C attribute {raw.__name__} of a {type(obj).__qualname__}"
    raise graph_break("unsupported-object", text)


def close(objects: Objects) -> None:
    """Guard that different contexts are different objects. Called at the end of the trace."""
    if len(objects.contexts) > 1:
        first, *others = [objects.registry.by_proxy[obj].source for obj in objects.contexts]
        objects.trace.guard(first, AllDistinct(tuple(others)))
