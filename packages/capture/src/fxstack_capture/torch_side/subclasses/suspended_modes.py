"""The program's torch-function modes, which are off while tracing and while graphs run, and levels of
overrides.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from types import FunctionType
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.guards.torch_state import function_mode_at
from fxstack_capture.torch_compat import DeviceContext

_ASIDE: ContextVar[tuple[Any, ...]] = ContextVar("_ASIDE", default=())
_PUSH = torch_compat.push_on_torch_function_stack
_POP = torch_compat.pop_torch_function_stack
_COUNT = torch_compat.len_torch_function_stack


def present() -> tuple[Any, ...]:
    """Return the modes that are on, outermost first. If all of them set a default device, return no modes."""
    # Modes that set a default device may stay on.
    count = _COUNT()
    modes = tuple(function_mode_at(i) for i in range(count))
    return () if all(type(mode) is DeviceContext for mode in modes) else modes


def can_be_followed(mode: object) -> bool:
    """Return whether a trace supports the mode.

    It must have a Python ``__torch_function__``, or set a default device. Under any other mode, frames run in
    plain Python.
    """
    cls = type(mode)
    if cls is DeviceContext:
        return True
    is_library = cls.__module__.split(".", 1)[0] in ("torch", "fxstack_capture", "fxstack_functionalize")
    return not is_library and isinstance(getattr(cls, "__torch_function__", None), FunctionType)


@contextmanager
def set_aside() -> Iterator[tuple[Any, ...]]:
    """Turn the program's modes off inside the context. Return them, including modes that were already off."""
    modes = present()
    if not modes:
        yield _ASIDE.get()
        return
    token = _ASIDE.set(modes)
    for _ in modes:
        _POP()
    try:
        yield modes
    finally:
        for mode in modes:
            _PUSH(mode)
        _ASIDE.reset(token)


@contextmanager
def no_modes_left() -> Iterator[None]:
    """At the end of the context, pop the modes that were pushed inside and are still on."""
    # A signal handler may raise before a ``with`` block has popped its mode.
    before = _COUNT()
    try:
        yield
    finally:
        while _COUNT() > before:
            _POP()


@contextmanager
def put_back() -> Iterator[None]:
    """Inside of ``set_aside``, turn the program's modes on again, so that guards see the program's state."""
    modes = _ASIDE.get()
    for mode in modes:
        _PUSH(mode)
    token = _ASIDE.set(())
    try:
        yield
    finally:
        _ASIDE.reset(token)
        for _ in modes:
            _POP()


def mode_at(position: int) -> Any:
    """Return the mode at a position of the program's stack of modes. The mode may be suspended."""
    aside = _ASIDE.get()
    return aside[position] if aside else function_mode_at(position)


def without_modes(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs ``fn``, a compiled graph, with the program's modes off."""

    @functools.wraps(fn)
    def call(*args: object) -> Any:
        """Call ``fn`` while the program's modes are suspended."""
        with set_aside():
            return fn(*args)

    return call


def without_classes(fn: Callable[..., Any], redefined: tuple[int, ...]) -> Callable[..., Any]:
    """Return a function that runs ``fn``, a compiled graph, with ``__torch_function__`` of classes off.

    The arguments at the positions ``redefined`` are replaced by views of the plain class.
    """

    @functools.wraps(fn)
    def call(*args: object) -> Any:
        """Call ``fn`` while overrides of classes are off."""
        with torch_compat.DisableTorchFunctionSubclass():
            return fn(*args)

    @functools.wraps(fn)
    def call_on_views(*args: object) -> Any:
        """Call ``fn`` with views of the plain class, because the subclass redefines methods that ``fn`` uses."""
        plain = list(args)
        for position in redefined:
            plain[position] = _as_plain(plain[position], torch.Tensor)
        return call(*plain)

    return call_on_views if redefined else call


_as_plain = torch_compat.TensorBase.as_subclass


class Level(IntEnum):
    """Which ``__torch_function__`` methods are on: all, only those of modes, or none."""

    ALL_ON = 0
    CLASSES_OFF = 1
    ALL_OFF = 2


def present_level() -> Level:
    """Return the level of overrides that torch has now."""
    if torch_compat.is_torch_function_all_disabled():
        return Level.ALL_OFF
    return Level.ALL_ON if torch_compat.is_torch_function_enabled() else Level.CLASSES_OFF
