"""What a program says about its callables: one node of the graph, never in a graph, a constant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from fxstack_capture.annotations import check_callable
from fxstack_capture.calls.marks.nonstrict import as_operations
from fxstack_capture.calls.marks.registered import (
    as_one_node,
    called_once,
    ending_the_graph,
    label_of,
    register,
    traced_as,
)

F = TypeVar("F", bound="Callable[..., Any]")


def allow_in_graph(fn: object) -> Any:
    """Calls of ``fn`` become one node of the graph: it is not looked into. Also takes a list; returns what it gets.

    ``fn`` must be a function of its tensor arguments alone, and run on fake tensors.
    """
    return _each(fn, "allow_in_graph", lambda f: register(f, as_one_node(f)))


def nonstrict_trace(fn: F) -> F:
    """A function like ``fn`` whose calls are in the graph as the operators that they come to. ``fn`` itself is as it was.

    Its Python is not captured: it runs whenever the graph is traced, on tensors without data, so its effects are not those
    of a call, and nothing is guarded but its arguments. Arguments and results are tensors and plain values, in containers
    and in classes that are registered with ``torch.utils._pytree`` (arguments only).
    """
    check_callable(fn, "nonstrict_trace")

    @functools.wraps(fn)
    def traced(*args: object, **kwargs: object) -> Any:
        return fn(*args, **kwargs)

    register(traced, as_operations(fn))
    return cast("F", traced)


def disallow_in_graph(fn: object) -> Any:
    """Calls of ``fn`` end the graph and run in plain Python. Also takes a list; returns what it gets."""
    return _each(fn, "disallow_in_graph", lambda f: register(f, ending_the_graph(f, "disallowed")))


def forbid_in_graph(fn: object) -> Any:
    """A call of ``fn`` in compiled code is an error (``Unsupported``). Also takes a list; returns what it gets."""
    return _each(fn, "forbid_in_graph", lambda f: register(f, ending_the_graph(f, "forbidden")))


def assume_constant_result(fn: F) -> F:
    """``fn`` is called once, while tracing; its result is a constant of the compiled code. Returns ``fn``.

    Nothing guards that the result stays the same: that is the caller's promise.
    """
    check_callable(fn, "assume_constant_result")
    register(fn, called_once(fn))
    return fn


def substitute_in_graph(original: object) -> Callable[[F], F]:
    """A decorator: the function is traced wherever compiled code calls ``original``; plain Python calls the original.

    For functions in C, which cannot be traced: the substitute says in Python what they do.

    Raises:
        TypeError: the two take different parameters.
    """
    check_callable(original, "substitute_in_graph")

    def substitute(fn: F) -> F:
        check_callable(fn, "substitute_in_graph")
        _check_parameters(original, fn)
        register(original, traced_as(fn))
        return fn

    return substitute


def _check_parameters(original: Any, substitute: Any) -> None:
    try:
        expected = inspect.signature(original)
    except ValueError:  # many functions in C have none
        return
    found = inspect.signature(substitute)
    names, others = ([(p.name, p.kind) for p in s.parameters.values()] for s in (expected, found))
    if names != others:
        raise TypeError(
            f"substitute_in_graph: {substitute.__qualname__}{found} does not take what {label_of(original)}{expected} takes.\n"
            "fix: give it the same parameters, with the same names."
        )


def _each(fn: object, name: str, mark: Callable[[Any], None]) -> Any:
    for one in fn if isinstance(fn, (list, tuple)) else (fn,):
        check_callable(one, name)
        mark(one)
    return fn
