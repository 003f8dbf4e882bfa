"""Global torch state that a program changes while it is traced (grad mode, autocast, defaults, ...).

Changes are carried out for real during the trace, so that fakes get the right ``requires_grad`` and dtype,
and are written into the graph; ``session`` undoes them when the trace ends, and ``StateLog.delta`` says how
to redo what is left of them at that point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any

import torch
from torch import fx

from fxstack_capture import torch_compat

Redo = tuple["Callable[..., Any]", tuple[Any, ...]]


class Flag(partial[Any]):
    """A getter of torch's state as an object whose ``value`` is read without running Python code."""

    value = property(methodcaller("__call__"))


@dataclass(frozen=True, slots=True)
class Variable:
    """One piece of state: how to read it (a tuple of values) and the call that sets it to those."""

    read: Callable[[], tuple[Any, ...]]
    write: Callable[..., Any]
    fixed: tuple[Any, ...] = ()
    in_graph: bool = True
    """Whether operators of a graph depend on it."""

    def redo(self, values: tuple[Any, ...]) -> Redo:
        return self.write, (*self.fixed, *values)


def _autocast_variables(device: str) -> tuple[Variable, ...]:
    return (
        Variable(lambda: (torch.is_autocast_enabled(device),), torch.set_autocast_enabled, (device,)),
        Variable(lambda: (torch.get_autocast_dtype(device),), torch.set_autocast_dtype, (device,)),
    )


def set_deterministic(mode: bool, warn_only: bool) -> None:
    """Both flags of ``torch.use_deterministic_algorithms`` in one call with positional arguments."""
    torch_compat.set_deterministic_algorithms(mode, warn_only=warn_only)


ATTENTION_FLAGS: dict[str, Callable[[], bool]] = {
    name: getattr(torch_compat.C, f"_get_{name}_sdp_enabled")
    for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")
}
"""Which implementations of attention may be chosen: name -> getter."""


def _attention_variable(name: str) -> Variable:
    getter = ATTENTION_FLAGS[name]
    return Variable(lambda: (getter(),), getattr(torch_compat.C, f"_set_sdp_use_{name}"))


def set_disabling_message(message: str | None) -> None:
    """Disable hooks for saved tensors, with what is said of it; None: allow them."""
    if message is None:
        torch_compat.saved_tensors_hooks_enable()
    else:
        torch_compat.saved_tensors_hooks_disable(message)


VARIABLES: tuple[Variable, ...] = (
    Variable(lambda: (torch.is_grad_enabled(),), torch_compat.set_grad_enabled),
    *_autocast_variables("cpu"),
    *_autocast_variables("cuda"),
    Variable(lambda: (torch.is_autocast_cache_enabled(),), torch.set_autocast_cache_enabled),
    Variable(lambda: (torch.get_default_dtype(),), torch.set_default_dtype),
    Variable(
        lambda: (
            torch_compat.get_deterministic_algorithms(),
            torch_compat.get_deterministic_algorithms_warn_only(),
        ),
        set_deterministic,
    ),
    *map(_attention_variable, ATTENTION_FLAGS),
    Variable(
        lambda: (torch_compat.saved_tensors_hooks_get_disabled_error_message(),),
        set_disabling_message,
        in_graph=False,
    ),
    Variable(
        lambda: (torch_compat.is_fwd_grad_enabled(),), torch_compat.set_fwd_grad_enabled, in_graph=False
    ),
)


_WRITERS = frozenset(
    {
        *(variable.write for variable in VARIABLES),
        torch_compat.set_default_dtype,
        torch_compat.set_deterministic_algorithms,
    }
)
"""Calls in a graph after which torch's state is another."""


class StateLog:
    """The state when the trace began, and the depth of autocast since (torch has no getter for it)."""

    def __init__(self) -> None:
        self.nesting = 0
        self.entry = present()

    def delta(self, start: State) -> list[Redo]:
        """Calls that lead from ``start`` (the entry state, or what follows it) to the present one."""
        redo = difference(start, present())
        step = torch.autocast_increment_nesting
        if self.nesting < 0:
            step = torch.autocast_decrement_nesting
        return redo + [(step, ())] * abs(self.nesting)


State = list[tuple[Any, ...]]
"""What each of ``VARIABLES`` is."""


def present() -> State:
    """What all of ``VARIABLES`` are."""
    return [variable.read() for variable in VARIABLES]


def difference(before: State, after: State) -> list[Redo]:
    """Calls that lead from one state to another."""
    return [
        variable.redo(value)
        for variable, old, value in zip(VARIABLES, before, after, strict=True)
        if old != value
    ]


def all_of(wanted: State, others: Iterable[State]) -> list[Redo]:
    """Calls that set what differs between ``wanted`` and any of ``others``."""
    states = tuple(others)
    return [
        variable.redo(values[0])
        for variable, values in zip(VARIABLES, zip(wanted, *states, strict=True), strict=True)
        if any(value != values[0] for value in values)
    ]


def in_graph(before: State, after: State) -> list[Redo]:
    """``difference`` in what operators depend on."""
    return [
        variable.redo(value)
        for variable, old, value in zip(VARIABLES, before, after, strict=True)
        if variable.in_graph and old != value
    ]


def put_back(before: State) -> None:
    """The state as it was, as by leaving ``with`` blocks."""
    for write, args in difference(present(), before):
        write(*args)


def changed_by(graph: fx.Graph) -> bool:
    """Whether ``graph`` sets torch's state on its way."""
    return any(node.op == "call_function" and node.target in _WRITERS for node in graph.nodes)


def seen_below() -> State:
    """The present state as a kernel sees it: what autocast has cast is computed with autocast off."""
    return [
        (False,) if _is_cast_already(variable) else value
        for variable, value in zip(VARIABLES, present(), strict=True)
    ]


def _is_cast_already(variable: Variable) -> bool:
    if variable.write is not torch.set_autocast_enabled:
        return False
    key = _AUTOCAST_KEYS[variable.fixed[0]]
    return bool(torch_compat.dispatch_tls_is_dispatch_key_excluded(key))


_AUTOCAST_KEYS = {"cpu": torch_compat.DispatchKey.AutocastCPU, "cuda": torch_compat.DispatchKey.AutocastCUDA}


@contextmanager
def hooks_aside() -> Iterator[None]:
    """The program's hooks for saved tensors are not called: what fakes save is no tensor of the program."""
    set_tracing = torch_compat.saved_tensors_hooks_set_tracing
    before = set_tracing(True)
    try:
        yield
    finally:
        set_tracing(before)


@contextmanager
def session(log: StateLog) -> Iterator[StateLog]:
    """Undo at the end whatever the program changed."""
    try:
        yield log
    finally:
        for write, args in difference(present(), log.entry):
            write(*args)
        while log.nesting > 0:
            torch.autocast_decrement_nesting()
            log.nesting -= 1
        while log.nesting < 0:
            torch.autocast_increment_nesting()
            log.nesting += 1
