"""``torch.nn.Module``: calls without hooks go straight to ``forward``; parameters, buffers and
submodules are found directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.nn.modules import module as _module
from torch.utils.hooks import BackwardHook

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.guards.records import LengthIs
from fxstack_capture.world.lazy_dict import ABSENT

if TYPE_CHECKING:
    from fxstack_capture.trace import Trace
    from fxstack_capture.world.lazy_dict import LazyDict

RULES: RuleTable = RuleTable()

_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
)
_OWN_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
_NAMESPACE = vars(_module)


@RULES.rule(torch.nn.Module.__getattr__)
def module_getattr(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    self, name = args
    world: Any = trace.world
    own = world.own_dict(self)
    for holder in ("_parameters", "_buffers", "_modules"):
        members = own(holder)
        if members is not ABSENT:
            found = world.dict_get(members, name)
            if found is not ABSENT:
                return found
    raise AttributeError(
        f"'{type(self).__name__}' object has no attribute '{name}'", name=name, obj=self
    )


@RULES.forward(torch.nn.Module.__call__)
def module_call(
    trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """``_wrapped_call_impl`` and ``_call_impl``."""
    self = args[0]
    compiled = trace.world.load_attr(self, "_compiled_call_impl") is not None
    name = "_call_impl" if compiled or _hooked(trace, self) else "forward"
    return trace.world.load_attr(self, name), args[1:], kwargs


def _hooked(trace: Trace, self: Any) -> bool:
    truth = trace.calls.truth
    namespace = trace.world.namespace(_NAMESPACE)  # type: ignore[attr-defined]
    if any(truth(namespace.get(name)) for name in _GLOBAL_HOOKS):
        return True
    state = trace.world.instances.get(id(self))  # type: ignore[attr-defined]
    load = trace.world.load_attr
    return any(
        truth(load(self, name))
        for name in _OWN_HOOKS
        if state is None or not _empty_outside(trace, state, name)
    )


def _empty_outside(trace: Trace, state: LazyDict, name: str) -> bool:
    """Whether the hooks are empty and nobody has looked at them: one guard, no stand-in."""
    hooks = state.original.get(name)
    if not isinstance(hooks, dict) or hooks or name in state.mirror or name in state.known:
        return False
    trace.guard(state.item_source(name), LengthIs(0))
    return True


@RULES.rule(torch._C._get_tracing_state)
def _no_tracing_state(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    return None


@RULES.rule(BackwardHook, BackwardHook.setup_input_hook, BackwardHook.setup_output_hook)
def _backward_hooks(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    """They hang on nodes of autograd's graph, which are others in compiled code."""
    raise graph_break("unsupported-call", "a module's backward hooks")
