"""Functions that replacement code calls. None of them runs code of the program's classes.

Replacement code uses plain Python syntax where syntax suffices, so few functions are needed.
"""

from __future__ import annotations

import _random
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from traceback import walk_tb
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import default_generator

from fxstack_capture import native, torch_compat
from fxstack_capture.interpreter.polyfills import pass_through

States = tuple[tuple[Callable[[Any], object], Any], ...]
"""Pairs (function, state), one for each generator. The function restores the state."""


class Continue(tuple[Any, ...]):
    """Return value of a replacement whose frame continues elsewhere: (function, arguments).

    The C extension calls the function after the frame of the replacement has ended (see ``native``).
    """

    __slots__ = ()


if native.AVAILABLE:
    native.use_continuation(Continue)
    native.hide_file(pass_through.__code__.co_filename)


def default_state() -> States:
    """Return the state of torch's default CPU generator."""
    return generator_states(default_generator)


def generator_states(*generators: random.Random | np.random.RandomState | torch.Generator) -> States:
    """Return the states of the generators, as pairs (function, state). ``way_back`` calls the functions to
    restore the states.
    """
    return tuple(
        [
            (generator.set_state, generator.get_state())
            if isinstance(generator, (torch.Generator, np.random.RandomState))
            else (partial(_set_state, generator), _state_of(generator))
            for generator in generators
        ]
    )


def _state_of(generator: Any) -> Any:
    """Return the state of a ``random.Random``, for ``_set_state``."""
    # Read the state by a C method. ``generator.getstate()`` is Python code, which would be compiled.
    return _random.Random.getstate(generator), generator.gauss_next


def _set_state(generator: Any, state: Any) -> None:
    """Restore a state that ``_state_of`` returned."""
    words, generator.gauss_next = state
    _random.Random.setstate(generator, words)


def way_back(code: CodeType, name: str, *, handles: bool) -> Callable[..., Continue]:
    """Return a function that replacement code calls to run ``code`` in plain Python with the frame's
    arguments.

    The function gets ``error``, the exception of the graph, or None after a failed assumption. If plain
    Python raises nothing, ``error`` is raised at the end. If ``handles`` (the program may have handled the
    error), ``error`` is not raised. An error of this package, or of the program's saved-tensor hooks, is
    raised at once.
    """

    def leave(
        namespace: dict[str, Any],
        closure: tuple[CellType, ...],
        arguments: tuple[Any, ...],
        states: States,
        error: Exception | None,
    ) -> Continue:
        """Restore the random states, and continue with the original code from the start of the frame."""
        ours = type(error).__module__.startswith("fxstack")
        if error is not None and (ours or _raised_by_hook(error)):
            return Continue((native.Disabled(tuple, error), ()))
        for put_back, state in states:
            put_back(state)
        function = FunctionType(code, namespace, name, None, closure)
        return Continue((native.Disabled(function, None if handles else error), arguments))

    return leave


def _raised_by_hook(error: Exception) -> bool:
    """Return whether an active saved-tensor hook raised ``error``, for example to stop a recomputation."""
    # Hooks count their calls, so the operators before the error must not run a second time.
    hooks = torch_compat.top_saved_tensors_default_hooks(True)
    # Compare code objects by identity. Constants of replacement code may have no hash.
    codes = {id(code) for hook in hooks or () for code in _codes_of(hook)}
    return any(id(frame.f_code) in codes for frame, _ in walk_tb(error.__traceback__))


def _codes_of(hook: object) -> Iterator[CodeType]:
    """Yield the code of a hook, and the code of the functions that the hook wraps (``__wrapped__``)."""
    while hook is not None:
        function = hook if isinstance(hook, FunctionType | MethodType) else type(hook).__call__
        code = getattr(function, "__code__", None)
        if code is not None:
            yield code
        hook = getattr(hook, "__wrapped__", None)


def not_nothing(result: object) -> TypeError:
    """Return the error that CPython raises when ``__init__`` returns ``result`` instead of None.

    The resume function of a caller raises it.
    """
    name = type(result).__name__
    return TypeError(f"__init__() should return None, not '{name}'")


def without_frames(error: BaseException, count: int) -> BaseException:
    """Remove the outermost ``count`` frames from the traceback of ``error``, and return ``error``.

    Called where replacement code raises an exception again. The removed frames belong to stubs and
    replacements.
    """
    traceback = error.__traceback__
    for _ in range(count):
        if traceback is not None:
            traceback = traceback.tb_next
    BaseException.__dict__["__traceback__"].__set__(error, traceback)
    return error


def finished_generator() -> Any:
    """Return an exhausted generator. It replaces a generator of the trace that has finished."""
    empty: tuple[None, ...] = ()
    generator = (nothing for nothing in empty)
    next(generator, None)
    return generator


def keys_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    """Return an iterator over the keys, made in C. No override of a dict subclass runs."""
    return dict.__iter__(mapping)


def values_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    """Return an iterator over the values, made in C. No override of a dict subclass runs."""
    return iter(dict.values(mapping))


def items_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    """Return an iterator over the items, made in C. No override of a dict subclass runs."""
    return iter(dict.items(mapping))


def last_keys_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    """Return a reversed iterator over the keys."""
    return dict.__reversed__(mapping)


def last_values_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    """Return a reversed iterator over the values."""
    return reversed(dict.values(mapping))


def last_items_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    """Return a reversed iterator over the items."""
    return reversed(dict.items(mapping))


def standing_at(begin: Callable[[list[Any]], Any], items: list[Any], index: int) -> Any:
    """Return a list iterator over ``items`` at position ``index``.

    ``begin`` makes the iterator. The list may still be shorter than ``index``, because its items are added
    later.
    """
    # ``__setstate__`` moves at most to the end of the list, so the list is extended by None items meanwhile.
    missing = max(0, index + 1 - list.__len__(items))
    list.extend(items, [None] * missing)
    iterator = begin(items)
    iterator.__setstate__(index)
    if missing:
        list.__delitem__(items, slice(-missing, None))
    return iterator


def advanced(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    """Advance the iterator by ``count`` items and return it. If fewer items are left, the iterator is
    exhausted.
    """
    next(islice(iterator, count, count), None)
    return iterator
