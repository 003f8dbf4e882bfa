"""``torch.nn.Module``: call ``forward`` directly if there are no hooks, and look up members directly; handles of hooks."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType
from typing import Any, NoReturn

import torch
from torch.autograd.function import FunctionCtx
from torch.nn.modules import module as _module
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils.hooks import BackwardHook, RemovableHandle

from fxstack_capture import native, torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.rules import RULES
from fxstack_capture.guards.records import Guard, HasKey, MembersAre
from fxstack_capture.objects.instances import raw_dict
from fxstack_capture.sources import InstanceDict, pinned
from fxstack_capture.torch_compat import BackwardHookFunction
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.rule_registry import Request
from fxstack_capture.trace.state import Args, Kwargs, Trace

_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
)
_OWN_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_HOOK_TABLES = frozenset({dict, OrderedDict})
"""The classes of the dictionaries that hold hooks."""
_ABSENT = ("_compiled_call_impl", "forward")
"""Attributes of the class that an instance may shadow in its ``__dict__``. The fast path needs them absent."""
_NAMESPACE = vars(_module)
_CALL_IMPL = torch_compat.module_call
_CALL_CODE = _CALL_IMPL.__code__


@RULES.rule(torch.nn.Module.__getattr__)
def module_getattr(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Read a parameter, buffer or submodule of a module."""
    self, name = args
    objects = trace.objects
    state = objects.instances.get(id(self))
    own = raw_dict(self)
    for holder in ("_parameters", "_buffers", "_modules"):
        members = own.get(holder, ABSENT) if state is None else state.get(holder)
        if members is not ABSENT:
            lazy = objects.lazy.get(id(members))
            member = members.get(name, ABSENT) if lazy is None else lazy.get(name)
            if member is not ABSENT:
                return member
    raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self)


@RULES.forward(torch.nn.Module.__call__)
def module_call(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Request:
    """Return the call that ``_wrapped_call_impl`` and ``_call_impl`` make."""
    self = args[0]
    objects = trace.objects
    impl = objects.classes.lookup(type(self), "_call_impl")
    usual = impl is _CALL_IMPL and _CALL_IMPL.__code__ is _CALL_CODE
    if not usual or not trace.torch.is_usual(_CALL_IMPL):
        return objects.load_attr(self, "_call_impl"), args[1:], kwargs
    if _is_plain(trace, self):
        return trace.objects.load_attr(self, "forward"), args[1:], kwargs
    compiled = trace.objects.load_attr(self, "_compiled_call_impl") is not None
    name = "_call_impl" if compiled or _hooked(trace, self) else "forward"
    return trace.objects.load_attr(self, name), args[1:], kwargs


def _is_plain(trace: Trace, self: object) -> bool:
    """Whether a call of the module runs its ``forward`` alone, which one guard then checks.

    The result is False if the trace has already read the module's hooks.
    """
    objects = trace.objects
    state = objects.instances.get(id(self))
    if state is None or type(state.source) is not InstanceDict or _globally_hooked(trace):
        return False
    if objects.classes.lookup(type(self), "__getattribute__") is not object.__getattribute__:
        return False
    original, proxy, known_members = state.original, state.proxy, state.known
    if state.expanded or any(
        name in original or name in proxy or known_members.get(name, ABSENT) is not ABSENT for name in _ABSENT
    ):
        return False
    for name in _OWN_HOOKS:
        hooks = original.get(name)
        if type(hooks) not in _HOOK_TABLES or hooks or name in proxy or name in known_members:
            return False
    if objects.load_attr(type(self), "_compiled_call_impl") is not None:
        return False
    trace.guard(state.source, MembersAre(_ABSENT, _OWN_HOOKS))
    known_members.update(dict.fromkeys(_ABSENT, ABSENT))
    return True


def _globally_hooked(trace: Trace) -> bool:
    """Whether there are hooks for all modules."""
    namespace = trace.objects.namespace(_NAMESPACE)
    for name in _GLOBAL_HOOKS:
        hooks = namespace.get(name)
        if type(hooks) is OrderedDict:  # wrapped as a whole
            if hooks:
                return True
        elif trace.calls.truth(hooks):
            return True
    return False


def _hooked(trace: Trace, self: object) -> bool:
    """Whether the module has hooks, or there are hooks for all modules."""
    load, truth = trace.objects.load_attr, trace.calls.truth
    return _globally_hooked(trace) or any(truth(load(self, name)) for name in _OWN_HOOKS)


def first_lazy(root: Any) -> Any:
    """Return a module under ``root`` that creates its parameters in its first call, or None if there is none.

    ``FrameCompiler`` asks before it compiles a call of a module.
    """
    modules = root.modules() if root is not None else ()
    return next((m for m in modules if isinstance(m, LazyModuleMixin) and _WAITING in vars(m)), None)


def while_lazy(lazy: object) -> Guard:
    """Return the guard that holds until the module ``lazy`` is called. The first call creates its parameters."""
    return Guard(InstanceDict(pinned(lazy, type(lazy).__name__)), HasKey(_WAITING, present=True))


_WAITING = "_initialize_hook"
"""The attribute of a lazy module that has no parameters yet."""


@RULES.rule(LazyModuleMixin._infer_parameters)
def _infer_parameters(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Run the call in plain Python as a whole: random numbers are drawn in eager's order."""
    lazy = trace.objects.original_of(args[0])
    if not trace.may_defer or lazy is args[0]:
        return trace.interp.call_function(fn, args, kwargs)
    reason = graph_break("plain-python", f"the first call of a {type(lazy).__qualname__}")
    reason.until = while_lazy(lazy)
    raise reason


@RULES.rule(torch_compat.get_tracing_state)
def _no_tracing_state(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    # TorchScript does not trace.
    return None


@RULES.rule(BackwardHook, BackwardHook.setup_input_hook, BackwardHook.setup_output_hook)
def _backward_hooks(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> NoReturn:
    """Break the graph: backward hooks attach to autograd nodes, which differ in compiled code."""
    raise graph_break("unsupported-call", "a module's backward hooks")


# Torch counts handles in a class attribute. The attribute is not guarded: compiled code would write the same number in
# every call and so reset the count. Ids from tracing are larger than any count of torch. The ids are keys of
# dictionaries, and these dictionaries are guarded, so an id never collides with an id in use.
_IDS = itertools.count(1 << 40)


@RULES.rule(RemovableHandle.__init__)
def _make_handle(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Make the handle of a hook, with an id that no other handle has."""
    trace.interp.call_function(_init_handle, (next(_IDS), *args), kwargs)


def _init_handle(number: int, self: Any, hooks_dict: Any, *, extra_dict: Any = None) -> None:
    """Do what ``RemovableHandle.__init__`` does, with this number as the id."""
    self.hooks_dict_ref = weakref.ref(hooks_dict)
    self.id = number
    self.extra_dict_ref = ()
    if isinstance(extra_dict, dict):
        self.extra_dict_ref = (weakref.ref(extra_dict),)
    elif isinstance(extra_dict, list):
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extra_dict)


if native.AVAILABLE:  # these functions hold nothing to compile
    for _fn in (BackwardHookFunction.forward, FunctionCtx.mark_non_differentiable):
        if isinstance(_fn.__code__, CodeType):
            native.skip(_fn.__code__)
