"""Global torch state that a program changes while it is traced (grad mode, autocast, default dtype, ...).

The trace really changes the state, so that fakes get the right ``requires_grad`` and dtype. The trace also
records each change in the graph. When the trace ends, ``session`` restores the state. ``StateLog.delta``
returns the calls by which the replacement code makes the changes that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """A getter of torch's state as an object. A guard reads the state as its attribute ``value``."""

    # ``methodcaller`` is C code, so a guard reads ``value`` without running Python code.
    value = property(methodcaller("__call__"))


@dataclass(frozen=True, slots=True)
class Variable:
    """One piece of state: a getter that returns a tuple of values, and a setter for these values."""

    read: Callable[[], tuple[Any, ...]]
    """Returns the current values. ``write`` takes ``fixed`` and then these values, as positional arguments."""
    write: Callable[..., Any]
    fixed: tuple[Any, ...] = ()
    """The leading arguments of the setter, for example the device type of autocast."""
    in_graph: bool = True
    """Whether operators of a graph depend on the state."""

    def redo(self, values: tuple[Any, ...]) -> Redo:
        """Return the call (function, arguments) that sets the variable to ``values``."""
        return self.write, (*self.fixed, *values)


def _autocast_variables(device: str) -> tuple[Variable, ...]:
    """Return the variables of a device type such as ``cpu``: whether autocast is on, and its dtype."""
    return (
        Variable(lambda: (torch.is_autocast_enabled(device),), torch.set_autocast_enabled, (device,)),
        Variable(lambda: (torch.get_autocast_dtype(device),), torch.set_autocast_dtype, (device,)),
    )


def set_deterministic(mode: bool, warn_only: bool) -> None:
    """Set both flags of ``torch.use_deterministic_algorithms``, by position as a ``Variable`` needs it."""
    torch_compat.set_deterministic_algorithms(mode, warn_only=warn_only)


ATTENTION_FLAGS: dict[str, Callable[[], bool]] = {
    name: getattr(torch_compat.C, f"_get_{name}_sdp_enabled")
    for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")
}
"""Getters of the flags that allow the implementations of attention, by name of the flag."""


def _attention_variable(name: str) -> Variable:
    """Return the variable that says whether torch may choose an implementation of attention
    (``ATTENTION_FLAGS``).
    """
    getter = ATTENTION_FLAGS[name]
    return Variable(lambda: (getter(),), getattr(torch_compat.C, f"_set_sdp_use_{name}"))


def set_disabling_message(message: str | None) -> None:
    """Disable saved-tensor hooks, with the error text ``message``. None allows them."""
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
"""The functions of torch that change its state. A node with such a target ``sets_state``."""


class StateLog:
    """The state at the start of the trace, and the autocast nesting since then."""

    def __init__(self) -> None:
        # The trace counts the nesting itself, because torch has no getter for it.
        self.nesting = 0
        self.entry = present()

    def delta(self, start: State) -> list[Redo]:
        """Return the calls that change the state from ``start`` to the current state."""
        redo = difference(start, present())
        step = torch.autocast_increment_nesting
        if self.nesting < 0:
            step = torch.autocast_decrement_nesting
        return redo + [(step, ())] * abs(self.nesting)


State = list[tuple[Any, ...]]
"""A tuple with one value for each of ``VARIABLES``."""


def present(variables: Sequence[Variable] = VARIABLES) -> State:
    """Return the current values of ``variables``, one tuple for each variable."""
    return [variable.read() for variable in variables]


def difference(
    before: State, after: State, variables: Sequence[Variable] = VARIABLES, *, in_graph: bool = False
) -> list[Redo]:
    """Return the calls that change the state of ``variables`` from ``before`` to ``after``.

    ``in_graph`` omits the variables that do not influence any operator of a graph.
    """
    return [
        variable.redo(value)
        for variable, old, value in zip(variables, before, after, strict=True)
        if old != value and (variable.in_graph or not in_graph)
    ]


def all_of(state: State, others: Iterable[State]) -> list[Redo]:
    """Return the calls that set each variable to its value in ``state``. A variable is omitted if all
    ``others`` have this value.
    """
    return [
        variable.redo(value)
        for variable, value, *different in zip(VARIABLES, state, *others, strict=True)
        if any(other != value for other in different)
    ]


def put_back(before: State, variables: Sequence[Variable] = VARIABLES) -> None:
    """Set ``variables`` to the state ``before``. Called after a trace, a call of the backend, or a graph that
    raised.
    """
    for write, args in difference(present(variables), before, variables):
        write(*args)


def changed_by(graph: fx.Graph) -> tuple[Variable, ...]:
    """Return the variables that ``graph`` sets. If the graph raises, its caller restores them."""
    writers = {node.target for node in graph.nodes if sets_state(node)}
    if not writers <= {variable.write for variable in VARIABLES}:
        return VARIABLES  # a function with several settings, so assume that all are set
    return tuple(variable for variable in VARIABLES if variable.write in writers)


def sets_state(node: fx.Node) -> bool:
    """Return whether ``node`` of a graph is a call that sets torch's state, such as ``set_grad_enabled``."""
    return node.op == "call_function" and node.target in _WRITERS


def state_below_autocast() -> State:
    """Return the state that a kernel below the autocast dispatch key sees.

    ``Transforms`` records the operators of such kernels under this state.
    """
    # While autocast calls the kernel with cast arguments, it excludes its own dispatch key.
    return [
        (False,) if _is_cast_already(variable) else value
        for variable, value in zip(VARIABLES, present(), strict=True)
    ]


def _is_cast_already(variable: Variable) -> bool:
    """Return whether the variable is the autocast of a device, and its dispatch key is excluded."""
    if variable.write is not torch.set_autocast_enabled:
        return False
    key = _AUTOCAST_KEYS[variable.fixed[0]]
    return bool(torch_compat.dispatch_tls_is_dispatch_key_excluded(key))


_AUTOCAST_KEYS = {"cpu": torch_compat.DispatchKey.AutocastCPU, "cuda": torch_compat.DispatchKey.AutocastCUDA}


@contextmanager
def session(log: StateLog) -> Iterator[StateLog]:
    """Suspend the program's saved-tensor hooks. At the end, restore torch's state."""
    # While tracing, autograd saves fakes. The program's hooks must not see these.
    set_tracing = torch_compat.saved_tensors_hooks_set_tracing
    before = set_tracing(True)
    try:
        yield log
    finally:
        set_tracing(before)
        put_back(log.entry)
        step = torch.autocast_decrement_nesting if log.nesting > 0 else torch.autocast_increment_nesting
        for _ in range(abs(log.nesting)):
            step()
        log.nesting = 0


class Region:
    """Replaces ``torch._C._InferenceMode`` in the trace: the program gets it from the constructor.

    If a region is still open when the graph ends, the replacement code enters it.
    """

    # ``guard`` exists only while the mode is on outside of the trace.
    def __init__(self, mode: bool) -> None:
        self.mode = mode
        self.guard: Any = None

    def __enter__(self) -> None:
        self.guard = torch_compat.InferenceMode(self.mode)
        self.guard.__enter__()

    def __exit__(self, *error: object) -> None:
        guard, self.guard = self.guard, None
        guard.__exit__(*error)


@dataclass(frozen=True, slots=True)
class Open:
    """A region that the trace has entered. It has torch's state outside of the region and at its beginning.

    ``guard`` is the real ``torch._C._InferenceMode`` object that keeps the mode on in the trace.
    """

    region: Region
    guard: Any
    outside: State
    begin: State


class Regions:
    """The open regions of one trace, outermost first."""

    def __init__(self) -> None:
        self.outer = torch.is_inference_mode_enabled()
        """Whether inference mode was on when the trace began."""
        self.used = False
        """Whether the trace has entered a region, so that tensors may be inference tensors."""
        self.open: list[Open] = []

    @contextmanager
    def session(self) -> Iterator[None]:
        """At the end of the context, a trace, leave all regions that are still open."""
        try:
            yield
        finally:
            while self.open:
                self.leave()

    def enter(self, region: Region) -> None:
        """Turn on the mode of the region in the trace."""
        self.used = True
        outside = present()
        guard = torch_compat.InferenceMode(region.mode)
        guard.__enter__()
        self.open.append(Open(region, guard, outside, present()))

    def leave(self) -> None:
        """Turn off the mode of the innermost open region in the trace."""
        self.open.pop().guard.__exit__(None, None, None)

    def delta(self, entry: State) -> tuple[list[Redo], State]:
        """Return the calls that enter the open regions again from the state ``entry``, and the state after
        these calls.
        """
        # The graph may have set a part of the state, so each value that differs in any of the states is set.
        redo: list[Redo] = []
        now = present()
        for opened in self.open:
            redo += all_of(opened.outside, (entry, opened.begin, now))
            redo.append((Region.__enter__, (opened.region,)))
            entry = opened.begin
        return redo, entry
