"""Warnings while tracing: ignored warnings are dropped. Others are emitted after the graph has run, in order.

``warnings.warn`` derives the file, the line and the registry of the module from the stack. The rule derives
them from the frame of the program. Two kinds of warnings break the graph: warnings that are errors, and
warnings that are attributed to the caller of a module.
"""

from __future__ import annotations

import _warnings
import functools
import sys
import warnings
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.rules import RULES
from fxstack_capture.sources import pinned
from fxstack_capture.trace.effects import Call
from fxstack_capture.trace.state import Args, Kwargs, Trace


@RULES.rule(warnings.warn)
def _warn(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Emit the warning after the graph has run, or drop it if a filter ignores it. Break the graph for a new
    category, and for messages that are not text.
    """
    message = args[0] if args else kwargs.get("message")
    category = args[1] if len(args) > 1 else kwargs.get("category")
    if isinstance(message, Warning):
        category = type(message)
    if _ignored(trace, str(message), category or UserWarning):
        return
    level = args[2] if len(args) > 2 else kwargs.get("stacklevel", 1)
    plain = category is None or trace.objects.is_preexisting(category)
    if not plain or len(args) > 3 or not kwargs.keys() <= {"message", "category", "stacklevel"}:
        raise graph_break("side-effect-call", "warnings.warn")
    if type(message) is not str or type(level) is not int:
        raise graph_break("side-effect-call", "warnings.warn")
    _demand_undisturbed(trace, category or UserWarning)
    emit = functools.partial(_give, message, category or UserWarning, *_place(trace, level))
    deferred: list[Any] = trace.objects.deferred
    deferred.append(Call(pinned(emit, "give_warning"), (), {}))


def _place(trace: Trace, level: int) -> tuple[dict[str, Any], str, int] | tuple[int]:
    """Return the namespace, file and line of the frame to which a warning is attributed. Break the graph if
    the warning is about the caller of a module.

    If this frame is not traced, return its distance above the root frame, as a tuple of one number.
    """
    interp = trace.interp
    frame = interp.current_frame()
    for above in range(max(level, 1) - 1, 0, -1):
        if frame.code.co_name == "forward":  # the trace has no frames of nn.Module, so skip them
            raise graph_break("side-effect-call", "warnings.warn about the caller of a module")
        if frame.back is None:
            return (above,)
        frame = frame.back
    return frame.globals, frame.code.co_filename, frame.line


def _give(message: str, category: type[Warning], *place: Any) -> None:
    """Emit the warning as if the frame at ``place`` had called ``warnings.warn``. ``place`` is a result of
    ``_place``.
    """
    # frame 1 is the replacement code, which runs in place of the root frame
    if len(place) == 1:
        caller = sys._getframe(1 + place[0])
        place = caller.f_globals, caller.f_code.co_filename, caller.f_lineno
    namespace, file, line = place
    registry = namespace.setdefault("__warningregistry__", {})
    module = namespace.get("__name__") or "<string>"
    warnings.warn_explicit(message, category, file, line, module, registry)


def _demand_undisturbed(trace: Trace, category: Any) -> None:
    """Break the graph if the warning may raise, or if the program has replaced parts of ``warnings``."""
    state = trace.objects.namespace(vars(warnings))
    filters = trace.objects.load_attr(warnings, "filters")
    errors = any(action == "error" and issubclass(category, kind) for action, _, kind, *_ in filters)
    if errors or any(map(state.has_changed, _OUTLETS)):
        raise graph_break("side-effect-call", "warnings.warn")


_OUTLETS = ("filters", "showwarning", "_showwarnmsg", "_showwarnmsg_impl", "formatwarning")
"""The parts of ``warnings`` that a program may replace."""


def _ignored(trace: Trace, text: str, category: Any) -> bool:
    """Whether a filter drops a warning with this text and category. The first filter that applies decides.

    The result is False if a filter by module or line comes first, because only the real call can evaluate it.
    """
    filters = trace.objects.load_attr(warnings, "filters")
    for action, message, kind, module, line in filters:
        if not issubclass(category, kind) or (message is not None and not message.match(text)):
            continue
        if action != "ignore" and (module is not None or line):
            return False
        if module is None and not line:
            return bool(action == "ignore")
    return False


_MUTATED: Any = getattr(_warnings, "_filters_mutated", None)
"""The function that invalidates the caches of warnings. From Python 3.14 on, its callers hold a lock."""
if _MUTATED is None:
    _MUTATED = vars(_warnings)["_filters_mutated_lock_held"]


@RULES.rule(_MUTATED)
def _filters_mutated(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Increase the counter that invalidates the caches of warnings. This happens once, when the frame is
    left.
    """
    fn = vars(warnings)["_filters_mutated"]
    deferred: list[Any] = trace.objects.deferred
    if not any(isinstance(e, Call) and e.target.name == "_filters_mutated" for e in deferred):
        deferred.append(Call(pinned(fn, "_filters_mutated"), (), {}))


@RULES.rule(
    *(getattr(_warnings, name) for name in ("_acquire_lock", "_release_lock") if hasattr(_warnings, name))
)
def _hold_lock(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Do nothing. The data that the lock protects is changed only when the frame is left."""
