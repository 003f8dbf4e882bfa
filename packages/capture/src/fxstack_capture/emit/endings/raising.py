"""Frames whose trace ended with an exception of the program.

Plain Python runs the frame and raises the exception. If plain Python raises no exception, the exception came from
the compiler, which must be reported.
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

    ``report`` is called if ``code`` raises nothing: the trace was wrong.
    """

    def leave(
        namespace: dict[str, Any],
        closure: tuple[CellType, ...],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Continue:
        """Continue with the frame's function, which runs in plain Python and reports a missing exception."""
        function = FunctionType(code, namespace, code.co_name, None, closure)
        return Continue((native.Watched(partial(function, *arguments, **named), report), ()))

    return leave


def raising_frame(
    frame: RealFrame, code: CodeType, never_trace: Callable[[CodeType], None], report: Callable[[], None]
) -> Emitted:
    """Return replacement code that runs the frame in plain Python, because the trace ended with an exception.

    ``never_trace`` is called with the code that runs. ``report`` is as in ``watched``.
    """
    same = code.replace()  # a new object, so that no entry belongs to the code
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
    """Return the arguments of a frame as two expressions: a tuple by position, and a dictionary by name."""
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
