"""Objects whose destruction the program observes: instances with a ``__del__``, and targets of weak
references.

Compiled code drops objects at other points than plain Python, and a graph keeps the tensors that are made in
it. Therefore a program that makes such an object runs in plain Python, from the outermost function on.
Objects of the tracer are destroyed in the same way as objects of the program. Therefore the callbacks of
Python's weak dictionaries and sets may run while tracing.
"""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture.breaks import GraphBreak, caller, graph_break
from fxstack_capture.objects.instances import TORCH, has_visible_finalizer
from fxstack_capture.trace.state import Args, Trace


def finalizer_break(trace: Trace, cls: type) -> GraphBreak:
    """Return the graph break for a call of ``cls``, because the new object would have a ``__del__``.

    A finalizer of torch or of Python hides its effects. An object with such a finalizer only ends the graph.
    """
    whole = caller(trace.interp.current_frame()) if has_visible_finalizer(cls) else None
    return graph_break("escaping-object", f"a {cls.__qualname__}, which has a __del__,", whole=whole)


def demand_unobserved(trace: Trace, args: Args) -> None:
    """Break the graph if a new weak reference would show the death of an object to the program.

    The outermost function then runs in plain Python. ``args`` are the object and the callback of the
    reference. Weak dictionaries and sets of Python are allowed: their callbacks change only the container.
    """
    target, callback = (*args, None, None)[:2]
    user = frame = trace.interp.current_frame()
    while user.back is not None and _is_of_containers(user):
        user = user.back
    if user.code.co_filename.startswith(TORCH):
        return
    is_new_tensor = isinstance(target, torch.Tensor) and trace.torch.source_of(target) is None
    if is_new_tensor or (callback is not None and not _is_of_containers(frame)):
        detail = "a weak reference to a new tensor, or with a callback,"
        raise graph_break("side-effect-call", detail, whole=caller(frame))


def _is_of_containers(frame: Any) -> bool:
    """Whether ``frame`` runs code of the standard library or of torch's weak containers, for example
    ``WeakSet.add``.
    """
    return bool(frame.program.library or frame.code.co_filename == TORCH + "utils/weak.py")
