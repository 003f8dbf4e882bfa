"""Marks that a program sets on its callables, for example: one node of the graph, never in a graph, a
constant.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from fxstack_capture.annotations import check_callable
from fxstack_capture.calls.marks.nonstrict import as_operations
from fxstack_capture.calls.marks.program_rules import (
    call_once,
    ending_the_graph,
    label_of,
    record_as_node,
    register,
    traced_as,
)

F = TypeVar("F", bound="Callable[..., Any]")


def allow_in_graph(fn: object) -> Any:
    """Record each call of ``fn`` as one node of the graph. The body of ``fn`` is not traced.

    ``fn`` must depend only on its tensor arguments, and must run on fake tensors. ``fn`` may be a list of
    callables. Returns its argument.
    """
    return _each(fn, "allow_in_graph", lambda f: register(f, record_as_node))


def nonstrict_trace(fn: F) -> F:
    """Return a function like ``fn``. Its calls are recorded as the operators that they execute.

    ``fn`` itself does not change. Its Python code is not captured: it runs whenever the graph is traced, on
    tensors without data. Therefore its side effects do not happen once per call, and only its arguments are
    guarded. Arguments and results are tensors and plain values, in containers. Arguments may also be in
    classes that are registered with ``torch.utils._pytree``.
    """
    check_callable(fn, "nonstrict_trace")

    @functools.wraps(fn)
    def traced(*args: object, **kwargs: object) -> Any:
        return fn(*args, **kwargs)

    register(traced, as_operations(fn))
    return cast("F", traced)


def disallow_in_graph(fn: object) -> Any:
    """End the graph at each call of ``fn``, and run the call in plain Python.

    ``fn`` may be a list of callables. Returns its argument.
    """
    return _each(fn, "disallow_in_graph", lambda f: register(f, ending_the_graph("disallowed")))


def forbid_in_graph(fn: object) -> Any:
    """Make a call of ``fn`` in compiled code an error (``Unsupported``).

    ``fn`` may be a list of callables. Returns its argument.
    """
    return _each(fn, "forbid_in_graph", lambda f: register(f, ending_the_graph("forbidden")))


def assume_constant_result(fn: F) -> F:
    """Call ``fn`` once, while tracing, and use its result as a constant of the compiled code. Returns ``fn``.

    No guard checks that the result stays the same. The caller must make sure that it does.
    """
    check_callable(fn, "assume_constant_result")
    register(fn, call_once)
    return fn


def substitute_in_graph(original: object) -> Callable[[F], F]:
    """Return a decorator for a function that is traced in place of ``original`` in compiled code.

    Plain Python still calls ``original``. The decorator is for C functions, because they cannot be traced.
    The substitute implements the same behaviour in Python.

    Raises:
        TypeError: the two functions take different parameters.
    """
    check_callable(original, "substitute_in_graph")

    def substitute(fn: F) -> F:
        check_callable(fn, "substitute_in_graph")
        _check_parameters(original, fn)
        register(original, traced_as(fn))
        return fn

    return substitute


def _check_parameters(original: Any, substitute: Any) -> None:
    """Raise TypeError if the parameters of the two functions differ in names or kinds."""
    try:
        expected = inspect.signature(original)
    except ValueError:  # Many C functions have no signature.
        return
    found = inspect.signature(substitute)
    names, others = ([(p.name, p.kind) for p in s.parameters.values()] for s in (expected, found))
    if names != others:
        raise TypeError(
            f"substitute_in_graph: {substitute.__qualname__}{found} has other parameters than"
            f" {label_of(original)}{expected}.\n"
            f"fix: give {substitute.__qualname__} the same parameters with the same names."
        )


def _each(fn: object, name: str, mark: Callable[[Any], None]) -> Any:
    """Apply ``mark`` to ``fn``, or to each callable in the list ``fn``. Return ``fn``.

    ``name`` is the name of the public function in the TypeError.
    """
    for one in fn if isinstance(fn, (list, tuple)) else (fn,):
        check_callable(one, name)
        mark(one)
    return fn
