"""Attributes of tensors of the trace.

Metadata is read from the fake. A view becomes a node. A method is bound to the fake. Names are looked up on
the class that the user sees, so attributes of ``FakeTensor`` are invisible. A table beside the fakes holds
the attributes that the program assigns to tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import HasKey, IdentityIs, SlotUnset
from fxstack_capture.objects.protocols.descriptors import plan_of
from fxstack_capture.sources import BuiltinAttr, InstanceAttr, InstanceDict, SlotAttr
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.autograd import assigned_data
from fxstack_capture.torch_side.recording.constants import is_plain
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.fake_classes import (
    is_tensor_getset,
    is_users,
    overrides,
    shown_class,
)
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapper
from fxstack_capture.trace.records import AttributeWrite
from fxstack_capture.trace.state import Args

_MISSING = object()

_OUTSIDE_OF_THE_GRAPH = frozenset(
    {"_version", "_cdata", "_base", "volatile", "__cuda_array_interface__", "__array_interface__", "__dict__"}
)
"""Attributes for which the value of a fake differs from the value of the real tensor."""


def load(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> Any:
    """Load an attribute of a fake by CPython's attribute protocol.

    Raise the AttributeError of a real tensor.
    """
    objects: Any = tracer.trace.objects
    objects.classes.note(tracer.python_type(tensor), (name,))
    if _has_user_class(tensor) and is_users(tracer.python_type(tensor), name):
        return _of_user_class(tracer, tensor, name)
    if tracer.overrides.concern(None, (tensor,), {}):
        raw = _on_class(torch.Tensor, name)
        if is_tensor_getset(raw):
            return tracer.overrides.call(raw.__get__, (tensor,), {})
    return _plain(tracer, tensor, name)


def _plain(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> Any:
    """Return an attribute of a tensor, without a call of any ``__torch_function__``."""
    special = _LOADERS.get(name)
    if special is not None:
        return special(tracer, tensor)
    if name in _OUTSIDE_OF_THE_GRAPH:
        raise graph_break("unsupported-object", f"Tensor.{name}")
    cls = tracer.python_type(tensor)
    descriptor = _on_class(cls, name)
    if isinstance(descriptor, (GetSetDescriptorType, property)):
        return _read_property(tracer, tensor, name)
    assigned = _own_attribute(tracer, tensor, name)
    if assigned is not _MISSING:
        return assigned
    if descriptor is _MISSING:
        hook = _hook(tracer, cls)
        if hook is not None:
            return tracer.trace.calls.call(hook, (tensor, name), {})
        if _may_be_collective_result(tracer, tensor, name):
            if name == "wait" and _has_waited(tracer, tensor):
                return MethodType(_wait, tensor)
            detail = f"{name} of the result of a collective"
            raise graph_break("unsupported-tensor", detail, whole=tracer.trace.interp.current_frame())
        raise AttributeError(f"'{cls.__name__}' object has no attribute '{name}'", name=name, obj=tensor)
    getter = getattr(type(descriptor), "__get__", None)
    return descriptor if getter is None else getter(descriptor, tensor, type(tensor))


def _has_waited(tracer: TracerProtocol, tensor: torch.Tensor) -> bool:
    """Return whether ``tensor`` is the result of a functional collective. The graph waits for the result at once."""
    maker = tracer.builder.maker_of(tensor)
    target: Any = None if maker is None else maker.target
    wait = torch.ops._c10d_functional.wait_tensor
    return getattr(target, "overloadpacket", target) is wait


def _wait(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor``, in place of ``AsyncCollectiveTensor.wait``: the graph has waited for it already."""
    return tensor


def _may_be_collective_result(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> bool:
    """Return whether the tensor may be an ``AsyncCollectiveTensor``, which has the attribute."""
    # The results of functional collectives, and views of them, are plain tensors while tracing.
    functional = sys.modules.get("torch.distributed._functional_collectives")
    if tracer.source_of(tensor) is not None or functional is None:
        return False
    ran = any(operator.namespace.startswith("_c10d_functional") for operator in tracer.mode.operators)
    return ran and hasattr(functional.AsyncCollectiveTensor, name)


def _has_user_class(tensor: torch.Tensor) -> bool:
    """Return whether the tensor's class is defined by the program, so that the class may override attributes."""
    return shown_class(tensor) is not None or is_wrapper(tensor)


def _of_user_class(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> Any:
    """Load an attribute that a user's tensor class or wrapper class defines."""
    objects: Any = tracer.trace.objects
    cls = tracer.python_type(tensor)
    raw, getter, data = plan_of(objects, cls, name)
    if type(raw) is MemberDescriptorType:
        return _slot(tracer, tensor, raw)
    assigned = _MISSING if data else _own_attribute(tracer, tensor, name)
    if assigned is not _MISSING:
        return assigned
    return raw if getter is None else getter(objects, raw, tensor, cls)


def _slot(tracer: TracerProtocol, tensor: torch.Tensor, slot: MemberDescriptorType) -> Any:
    """Load a ``__slots__`` member of a wrapper. Other tensor classes with slots break the graph."""
    real, source = tracer.original_of(tensor)
    owner, name = slot.__objclass__, slot.__name__
    if real is None or source is None:
        return _made_inside(tracer, tensor, name, slot.__get__(tensor))
    try:
        value = slot.__get__(real)
    except AttributeError:
        tracer.trace.guard(source, SlotUnset(owner, name))
        raise
    return tracer.trace.objects.enter(value, SlotAttr(source, owner, name))


def _hook(tracer: TracerProtocol, cls: type) -> Any:
    """Return the ``__getattr__`` of a user's tensor class, or ``None``."""
    if not is_users(cls, "__getattr__"):
        return None
    return plan_of(tracer.trace.objects, cls, "__getattr__")[0]


def access(tracer: TracerProtocol, func: Any, args: Args) -> Any:
    """Run the call by which torch reports attribute access: ``Tensor.attr.__get__`` and relatives."""
    name = func.__self__.__name__
    match func.__name__:
        case "__get__":
            return _plain(tracer, args[0], name)
        case "__set__":
            return _store_plainly(tracer, args[0], name, args[1])
        case _:
            return _delete_plainly(tracer, args[0], name)


def accessed(tracer: TracerProtocol, func: Any, args: Args) -> Any:
    """Run ``access`` for a call that the program itself makes."""
    if tracer.overrides.concern(None, args, {}):
        return tracer.overrides.call(func, args, {})
    return access(tracer, func, args)


def store(tracer: TracerProtocol, tensor: torch.Tensor, name: str, value: object) -> None:
    """Set ``tensor.name = value``. ``attribute_writes`` records the write for the replacement code."""
    if is_wrapper(tensor):
        tracer.wrappers.demand_unused(tensor, name)
    if _has_user_class(tensor) and is_users(tracer.python_type(tensor), name):
        cls = tracer.python_type(tensor)
        raw, _, data = plan_of(tracer.trace.objects, cls, name)
        if type(raw) is MemberDescriptorType:
            raw.__set__(tensor, value)
            tracer.attribute_writes.append(AttributeWrite(tensor, name, value))
            return
        if data:
            if type(raw) is not property or raw.fset is None:
                raise graph_break("unsupported-object", f"assignment to {cls.__name__}.{name}")
            tracer.trace.calls.call(raw.fset, (tensor, value), {})
            return
    if tracer.overrides.concern(None, (tensor,), {}):
        raw = _on_class(torch.Tensor, name)
        if is_tensor_getset(raw):
            tracer.overrides.call(raw.__set__, (tensor, value), {})
            return
    _store_plainly(tracer, tensor, name, value)


def _store_plainly(tracer: TracerProtocol, tensor: torch.Tensor, name: str, value: object) -> None:
    """Store an attribute without calling any ``__torch_function__``, and record the write for the replacement code."""
    name = _ALIASES.get(name, name)
    if name == "requires_grad" and value is load(tracer, tensor, name):
        return
    if name == "requires_grad" and tracer.source_of(tensor) is None:
        tracer.call(torch.Tensor.requires_grad_, (tensor, value), {})
        return
    if name == "data" and _is_same_memory(tracer, tensor, value):  # ``Module.to`` of what needs no move
        return
    if name == "data":
        value = assigned_data.replace(tracer, tensor, value)
        if value is None:
            return
    elif name in HOOKS:
        hooks_of(tracer, tensor, name)  # breaks the graph for a result, whose hooks are not in the graph
    elif name != "grad":
        descriptor = _on_class(tracer.python_type(tensor), name)
        if isinstance(descriptor, (GetSetDescriptorType, property)):
            raise graph_break("unsupported-object", f"assignment to Tensor.{name}")
    if name == "grad":
        demand_unobserved(tracer, tensor, name)
    tracer.attributes_of(tensor)[name] = value
    if is_wrapper(tensor):  # the ``__torch_dispatch__`` of the wrapper reads the attribute
        vars(tensor)[name] = value
    tracer.attribute_writes.append(AttributeWrite(tensor, name, value))


_PLACE = (torch.Tensor.stride, torch.Tensor.storage_offset, torch.Tensor.is_conj, torch.Tensor.is_neg)


def _is_same_memory(tracer: TracerProtocol, tensor: torch.Tensor, value: object) -> bool:
    """Return whether ``value`` has memory, dtype and geometry of ``tensor``: the assignment then has no effect."""
    if not isinstance(value, FakeTensor) or tensor.layout is not torch.strided:
        return value is tensor
    with tracer.unrecorded():
        ours, theirs = ([ask(each) for ask in _PLACE] for each in (tensor, value))
        same = value.untyped_storage()._cdata == tensor.untyped_storage()._cdata
        return same and (tensor.dtype, tensor.shape, *ours) == (value.dtype, value.shape, *theirs)


_ALIASES = {"_grad": "grad"}


def delete(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> None:
    """Delete an attribute of a fake. Break the graph if the program overrides the deletion."""
    if is_wrapper(tensor) or tracer.overrides.concern(None, (tensor,), {}):
        raise graph_break("unsupported-object", f"deletion of Tensor.{name}")
    _delete_plainly(tracer, tensor, name)


def _delete_plainly(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> None:
    """Delete an attribute without calling any ``__torch_function__``, and note it for the replacement code.

    Raise AttributeError if the attribute is missing.
    """
    _plain(tracer, tensor, name)
    if name == "grad":
        store(tracer, tensor, name, None)
        return
    tracer.attributes_of(tensor)[name] = _MISSING
    tracer.attribute_writes.append(AttributeWrite(tensor, name, None, deleted=True))


def _on_class(cls: type, name: str) -> Any:
    """Return the attribute of the first class in the MRO that defines it, without binding it."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return _MISSING


def _own_attribute(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> Any:
    """Return an attribute from the ``__dict__`` of the tensor, or ``_MISSING``."""
    written = tracer.attributes_of(tensor)
    if name in written:
        return written[name]
    real, source = tracer.original_of(tensor)
    if real is None and tracer.wrappers.used and is_wrapper(tensor):
        value = vars(tensor).get(name, _MISSING)
        return value if value is _MISSING else _made_inside(tracer, tensor, name, value)
    if real is None or source is None:
        return _MISSING
    if name not in real.__dict__:
        tracer.trace.guard(InstanceDict(source), HasKey(name, present=False))
        return _MISSING
    return tracer.trace.objects.enter(real.__dict__[name], InstanceAttr(source, name))


def _made_inside(tracer: TracerProtocol, tensor: torch.Tensor, name: str, value: object) -> Any:
    """Return ``value``, an attribute of a wrapper that was made in the trace, as a value that the program may get."""
    if value is None or is_plain(value) or tracer.construction_of(tensor) is not None:
        return value
    if isinstance(value, torch.Tensor):
        if not tracer.builder.is_known(value):
            tracer.record(getattr, (tensor, name), {})
        return value
    raise graph_break("unsupported-object", f"{name} of a {type(tensor).__qualname__}")


def _read_property(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> Any:
    """Read a property that torch computes: metadata, or a view that becomes a node."""
    tracer.builder.demand_present(tensor)
    value = getattr(tensor, name)
    if is_plain(value):
        return value
    if isinstance(value, torch.Tensor):
        return tracer.record(getattr, (tensor, name), {})
    raise graph_break("unsupported-object", f"Tensor.{name}")


def _class(tracer: TracerProtocol, tensor: torch.Tensor) -> type:
    """Return ``tensor.__class__`` as the program sees it."""
    return tracer.python_type(tensor)


def _grad(tracer: TracerProtocol, tensor: torch.Tensor) -> Any:
    """Load ``tensor.grad``: the value that the trace has written, or the gradient of the real tensor."""
    written = tracer.attributes_of(tensor)
    if "grad" in written:
        return written["grad"]
    real, source = tracer.original_of(tensor)
    if real is None or source is None:
        return None
    demand_unobserved(tracer, tensor, "grad")
    return tracer.trace.objects.enter(real.grad, BuiltinAttr(source, "grad"))


def demand_unobserved(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> None:
    """Break the graph if a user's ``__torch_function__`` would see an access to the attribute."""
    cls = shown_class(tensor)
    if cls is not None and overrides(cls):
        raise graph_break("unsupported-object", f"{name} of a {cls.__qualname__}")
    if tracer.outer_modes:
        raise graph_break("unsupported-object", f"Tensor.{name} under a torch-function mode")


def hooks_of(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> Any:
    """Return the dictionary of hooks of an input leaf, or ``None`` if the leaf has no dictionary."""
    written = tracer.attributes_of(tensor)
    if name in written:
        return written[name]
    real, source = tracer.original_of(tensor)
    if real is None or source is None or not tensor.is_leaf:
        raise graph_break("unsupported-object", f"Tensor.{name}")
    demand_unobserved(tracer, tensor, name)
    hooks = getattr(real, name)
    if hooks is not None:
        return tracer.trace.objects.enter(hooks, BuiltinAttr(source, name))
    tracer.trace.guard(BuiltinAttr(source, name), IdentityIs(None, id(None)))
    return None


HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def _grad_fn(_tracer: TracerProtocol, tensor: torch.Tensor) -> None:
    """Return None for a tensor without history. Break the graph for an autograd node, which no trace can represent."""
    if tensor.grad_fn is not None:
        raise graph_break("unsupported-object", "Tensor.grad_fn of a tensor that has history")


_LOADERS: dict[str, Callable[[TracerProtocol, torch.Tensor], Any]] = {
    "__class__": _class,
    "grad": _grad,
    "_grad": _grad,
    "grad_fn": _grad_fn,
    "_grad_fn": _grad_fn,
    "data": assigned_data.load,
    **{name: partial(hooks_of, name=name) for name in HOOKS},
}
