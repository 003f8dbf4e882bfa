"""Torch-function modes of the program that are on around a compiled call: off while we trace, compile and run graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
    """The modes that are on, outermost first; none if all of them are default devices, which may stay on."""
    count = _COUNT()
    modes = tuple(function_mode_at(i) for i in range(count))
    return () if all(type(mode) is DeviceContext for mode in modes) else modes


def can_be_followed(mode: object) -> bool:
    """Whether a mode's ``__torch_function__`` is a user's Python, or that of a default device."""
    cls = type(mode)
    if cls is DeviceContext:
        return True
    own = cls.__module__.split(".", 1)[0] in ("torch", "fxstack_capture", "fxstack_functionalize")
    return not own and isinstance(getattr(cls, "__torch_function__", None), FunctionType)


@contextmanager
def set_aside() -> Iterator[tuple[Any, ...]]:
    """Inside, modes of the program are off; gives them (also where they were off before)."""
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
    """Take off what was put on inside and is still there: a signal's exception may come before a mode has been left."""
    before = _COUNT()
    try:
        yield
    finally:
        while _COUNT() > before:
            _POP()


@contextmanager
def put_back() -> Iterator[None]:
    """Inside of ``set_aside``: torch's state is the program's again, for guards to look at."""
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


def mode_at(place: int) -> Any:
    """The mode that the program has at a place of torch's stack, also while it is aside."""
    aside = _ASIDE.get()
    return aside[place] if aside else function_mode_at(place)


def without_modes(fn: Callable[..., Any]) -> Callable[..., Any]:
    """``fn`` with the modes of the program off."""

    @functools.wraps(fn)
    def call(*args: object) -> Any:
        with set_aside():
            return fn(*args)

    return call


def without_classes(fn: Callable[..., Any], redefined: tuple[int, ...]) -> Callable[..., Any]:
    """``fn`` with ``__torch_function__`` of classes off, and some arguments as plain views."""

    @functools.wraps(fn)
    def call(*args: object) -> Any:
        with torch_compat.DisableTorchFunctionSubclass():
            return fn(*args)

    @functools.wraps(fn)
    def call_on_views(*args: object) -> Any:
        plain = list(args)
        for place in redefined:
            plain[place] = _as_plain(plain[place], torch.Tensor)
        return call(*plain)

    return call_on_views if redefined else call


_as_plain = torch_compat.TensorBase.as_subclass
