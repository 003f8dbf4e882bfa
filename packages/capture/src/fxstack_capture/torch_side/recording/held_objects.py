"""Objects of the program that operators take as arguments: opaque objects of ``torch.library`` and torchbind objects.

The graph module holds such an object as an attribute. A symbolic ("reference") object keeps its identity, which is
guarded. A constant ("value") object is made again of its attributes, which are guarded.
"""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.guards.records import IdentityIs
from fxstack_capture.torch_side.recording.constants import is_constant
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.effect_diff import diff
from fxstack_capture.trace.effects import Call
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.state import Args, Kwargs

_ATTRIBUTE = "opaque_obj"
"""The beginning of the names of attributes, which is torch's."""


def replace_objects(
    tracer: TracerProtocol, args: Args, kwargs: Kwargs, reason: GraphBreak
) -> tuple[Args, Kwargs] | None:
    """Return the arguments with real objects in place of opaque objects of the trace; None if there are none.

    ``reason`` is the graph break at the call with ``args`` and ``kwargs``.
    """
    if not reason.is_argument:
        return None
    kinds = [kind for kind in map(_kind_of, (*args, *kwargs.values())) if kind is not None]
    if not kinds:
        return None
    new_args = tuple(_real(tracer, value) for value in args)
    return new_args, {name: _real(tracer, value) for name, value in kwargs.items()}


def _kind_of(value: object) -> str | None:
    """Return how torch passes an object to operators: "constant", "symbolic", or None for other values."""
    if isinstance(value, torch.ScriptObject):
        return "symbolic"
    cls = type(value)
    if is_constant(value) or not torch_compat.opaque_kind(cls):
        return None
    return torch_compat.opaque_kind(cls)


def _real(tracer: TracerProtocol, value: Any) -> Any:
    """Return the real object of an opaque object, which the graph module holds from now on."""
    kind = _kind_of(value)
    if kind is None or id(value) in tracer.builder.held:
        return value
    made = _recreated(tracer, value) if kind == "constant" else None
    real = _preexisting(tracer, value) if made is None else made
    tracer.builder.hold(real, _ATTRIBUTE)
    if kind == "symbolic":
        _forget_state(tracer, value)
    return real


def _forget_state(tracer: TracerProtocol, value: object) -> None:
    """Let later reads of the object's attributes break the graph: the operator may change them when the graph runs.

    Break the graph if the program has read an attribute that may change itself.
    """
    objects = tracer.trace.objects
    state = objects.instances.pop(id(value), None)
    for part in () if state is None else state.known.values():
        if not (is_constant(part) or part is ABSENT or isinstance(part, torch.Tensor)):
            text = (
                f"an operator with a {type(value).__qualname__} of which a {type(part).__qualname__} was read"
            )
            raise graph_break("unsupported-call", text)
    objects.opaque.add(id(value))


def _preexisting(tracer: TracerProtocol, value: object) -> Any:
    """Return the object of the program that ``value`` stands for, and guard its identity."""
    objects = tracer.trace.objects
    original, source = objects.original_of(value), objects.source_of(value)
    if source is None:
        raise graph_break(
            "unsupported-call", f"an operator with a {type(value).__qualname__} that was made inside"
        )
    if any(type(effect) is not Call for effect in diff(objects)):
        raise graph_break(
            "unsupported-call", f"an operator with a {type(value).__qualname__} after changes of objects"
        )
    tracer.trace.guard(source, IdentityIs(original, id(original)))
    return original


def _recreated(tracer: TracerProtocol, value: object) -> Any:
    """Return a new object with the attributes of ``value``; None if an attribute is no constant."""
    if not hasattr(value, "__dict__"):
        return None
    state = tracer.trace.calls.call(_state_of, (value,), {})
    if not all(is_constant(item) for item in state.values()):
        return None
    made = object.__new__(type(value))
    made.__dict__.update(state)
    return made


def _state_of(value: object) -> dict[str, Any]:
    """Return the attributes of an object. The interpreter runs this function, which guards them."""
    return dict(value.__dict__)
