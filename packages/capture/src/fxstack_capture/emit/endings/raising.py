"""Frames whose trace ended with an exception of the program.

Plain Python runs the frame and raises the exception. If plain Python raises no exception, the compiler caused
the exception; this error is reported.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any

from fxstack_capture import native
from fxstack_capture.emit.builder import Builder, call, load, tuple_of
from fxstack_capture.emit.code import compile_replacement
from fxstack_capture.emit.frame import Emitted
from fxstack_capture.emit.loads import Loads
from fxstack_capture.emit.runtime import Continue
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.sources import FreeCell, Globals


def watched(code: CodeType, report: Callable[[], None]) -> Callable[..., Continue]:
    """Return a function that replacement code calls in order to run ``code`` in plain Python.

    ``report`` is called if ``code`` raises no exception, because the trace was then wrong.
    """

    def leave(
        namespace: dict[str, Any],
        closure: tuple[CellType, ...],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Continue:
        """Continue with the function of the frame. Plain Python runs it; ``report`` is called if it raises no
        exception.
        """
        function = FunctionType(code, namespace, code.co_name, None, closure)
        return Continue((native.Watched(partial(function, *arguments, **named), report), ()))

    return leave


def raising_frame(
    frame: RealFrame, code: CodeType, never_trace: Callable[[CodeType], None], report: Callable[[], None]
) -> Emitted:
    """Return replacement code that runs the frame in plain Python, because the trace ended with an exception.

    Plain Python runs a copy of ``code``. ``never_trace`` is called with this copy. ``report`` is the argument
    of ``watched``.
    """
    same = code.replace()  # a new object has no entries
    never_trace(same)
    builder = Builder((*code.co_varnames, *code.co_freevars, *code.co_cellvars))
    loads = Loads(builder, frame)
    leave = builder.constant(watched(same, report), "plain_python")
    cells = [loads.expr(FreeCell(name)) for name in code.co_freevars]
    leaving = call(leave, loads.expr(Globals()), tuple_of(cells), *_arguments(code))
    statements = [*builder.loads, ast.Return(leaving)]
    replacement, tree = compile_replacement(code, builder, statements, code.co_firstlineno)
    return Emitted(replacement, tree, tuple(builder.named_constants().items()))


def _arguments(code: CodeType) -> tuple[ast.expr, ast.expr]:
    """Return two expressions for the arguments of a frame: a tuple by position, and a dictionary by name."""
    names = iter(code.co_varnames)
    positional: list[ast.expr] = [load(next(names)) for _ in range(code.co_argcount)]
    named = [next(names) for _ in range(code.co_kwonlyargcount)]
    keys: list[ast.expr | None] = [ast.Constant(name) for name in named]
    values: list[ast.expr] = [load(name) for name in named]
    if code.co_flags & inspect.CO_VARARGS:
        positional.append(ast.Starred(load(next(names)), ast.Load()))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        keys.append(None)
        values.append(load(next(names)))
    return tuple_of(positional), ast.Dict(keys, values)
