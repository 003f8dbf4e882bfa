"""Functions that emitted code calls. None of them runs code of the user's classes.

They are few on purpose: what plain syntax can say is emitted as syntax.
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

import torch
from torch import default_generator

from fxstack_capture import native, torch_compat
from fxstack_capture.calls.polyfills.functions import given

States = tuple[tuple[Callable[[Any], object], Any], ...]


class Continue(tuple[Any, ...]):
    """What a replacement returns when its frame goes on elsewhere: (function, arguments); see ``native``."""

    __slots__ = ()


if native.AVAILABLE:
    native.use_continuation(Continue)
    native.hide_file(given.__code__.co_filename)


def default_state() -> States:
    """That of torch's default generator on CPU."""
    return generator_states(default_generator)


def generator_states(*generators: random.Random | torch.Generator) -> States:
    """The states of generators, each with the function that gives a generator its state again."""
    return tuple(
        [
            (generator.set_state, generator.get_state())
            if isinstance(generator, torch.Generator)
            else (partial(_set_state, generator), _state_of(generator))
            for generator in generators
        ]
    )


def _state_of(generator: Any) -> Any:
    # ``generator.getstate()`` is Python code, which would be compiled.
    return _random.Random.getstate(generator), generator.gauss_next


def _set_state(generator: Any, state: Any) -> None:
    words, generator.gauss_next = state
    _random.Random.setstate(generator, words)


def way_back(code: CodeType, name: str, *, handles: bool) -> Callable[..., Continue]:
    """What a frame returns to run ``code`` in plain Python, given what it was called with.

    ``error`` is that of the graph, which is raised where plain Python raises none, unless it may have been handled
    (``handles``). Errors of this package, and those of the program's saved-tensor hooks, are raised at once.
    """

    def leave(
        namespace: dict[str, Any],
        closure: tuple[CellType, ...],
        arguments: tuple[Any, ...],
        states: States,
        error: Exception | None,
    ) -> Continue:
        ours = type(error).__module__.startswith("fxstack")
        if error is not None and (ours or _raised_by_hook(error)):
            return Continue((native.Disabled(tuple, error), ()))
        for put_back, state in states:
            put_back(state)
        function = FunctionType(code, namespace, name, None, closure)
        return Continue((native.Disabled(function, None if handles else error), arguments))

    return leave


def _raised_by_hook(error: Exception) -> bool:
    """Whether a saved-tensor hook that is on raised ``error``, to stop a recomputation, say.

    Hooks count their calls, so the operators before the error must not run again.
    """
    hooks = torch_compat.top_saved_tensors_default_hooks(True)
    # By identity: replacement code has constants that cannot be hashed.
    codes = {id(code) for hook in hooks or () for code in _codes_of(hook)}
    return any(id(frame.f_code) in codes for frame, _ in walk_tb(error.__traceback__))


def _codes_of(hook: object) -> Iterator[CodeType]:
    """Yield the code of a hook, and of the functions that the hook wraps."""
    while hook is not None:
        function = hook if isinstance(hook, FunctionType | MethodType) else type(hook).__call__
        code = getattr(function, "__code__", None)
        if code is not None:
            yield code
        hook = getattr(hook, "__wrapped__", None)


def not_nothing(result: object) -> TypeError:
    """What CPython raises when ``__init__`` returns something."""
    name = type(result).__name__
    return TypeError(f"__init__() should return None, not '{name}'")


def without_frames(error: BaseException, count: int) -> BaseException:
    """The exception, its traceback shortened by the outermost ``count`` frames: those that are not the program's."""
    traceback = error.__traceback__
    for _ in range(count):
        if traceback is not None:
            traceback = traceback.tb_next
    BaseException.__dict__["__traceback__"].__set__(error, traceback)
    return error


def finished_generator() -> Any:
    """A generator that has nothing left to give."""
    empty: tuple[None, ...] = ()
    generator = (nothing for nothing in empty)
    next(generator, None)
    return generator


def keys_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    return dict.__iter__(mapping)


def values_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    return iter(dict.values(mapping))


def items_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    return iter(dict.items(mapping))


def last_keys_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    return dict.__reversed__(mapping)


def last_values_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    return reversed(dict.values(mapping))


def last_items_of(mapping: dict[Any, Any]) -> Iterator[Any]:
    return reversed(dict.items(mapping))


def standing_at(begin: Callable[[list[Any]], Any], items: list[Any], index: int) -> Any:
    """A list iterator, made by ``begin``, that stands at ``index``, which the list may be too short for as yet.

    ``__setstate__`` moves no further than to the end, so the list is as long as it takes for a moment.
    """
    missing = max(0, index + 1 - list.__len__(items))
    list.extend(items, [None] * missing)
    made = begin(items)
    made.__setstate__(index)
    if missing:
        list.__delitem__(items, slice(-missing, None))
    return made


def advanced(iterator: Iterator[Any], count: int) -> Iterator[Any]:
    """The iterator, without its next ``count`` items."""
    next(islice(iterator, count, count), None)
    return iterator
