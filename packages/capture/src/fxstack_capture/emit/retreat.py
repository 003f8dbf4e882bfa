"""The way back: a frame whose graph was built on an assumption that does not hold runs in plain Python after all.

So does one that has handlers (``try``, ``with``), where the graph raises: they are reached by no other way.
Nothing has happened by then (``torch_side.assumptions``), so the original code starts from its beginning, with the
arguments and cells that the frame was given.
"""

from __future__ import annotations

import ast
import inspect
from types import FunctionType
from typing import TYPE_CHECKING

from fxstack_capture import native
from fxstack_capture.driver.errors import BackendError, WrongResultError
from fxstack_capture.emit import runtime
from fxstack_capture.emit.builder import call, load, store, tuple_of
from fxstack_capture.emit.rebuild.functions import namespace
from fxstack_capture.sources import FreeCell, Local

if TYPE_CHECKING:
    from types import CodeType

    from fxstack_capture.emit.frame import FrameWriter

_OURS = (BackendError, WrongResultError)
_EXTRAS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


class Retreat:
    """``before`` the call of the graph, around it (``guarded``), and ``check`` after it."""

    def __init__(self, writer: FrameWriter, passed: ast.expr | None, *, draws: bool) -> None:
        builder = writer.builder
        self._passed = passed
        self._ours = builder.constant(_OURS, "compiler_errors")
        self._exception = builder.constant(Exception, "Exception")
        self._leave: list[ast.stmt] = [ast.Return(_continuation(writer))]
        self.before: tuple[ast.stmt, ...] = ()
        if draws:
            state = builder.fresh("random_state")
            read = builder.constant(runtime.random_state, "read_random_state")
            write = builder.constant(runtime.set_random_state, "set_random_state")
            self.before = (ast.Assign([store(state)], call(read)),)
            self._leave.insert(0, ast.Expr(call(write, load(state))))

    def guarded(self, graph_call: ast.stmt) -> ast.stmt:
        """An error of the graph may be one that the program's check prevents, or that it handles itself.

        What the compiler says of its own work (``_OURS``) is not for the program.
        """
        ours = ast.ExceptHandler(self._ours, None, [ast.Raise()])
        handler = ast.ExceptHandler(self._exception, None, self._leave)
        return ast.Try([graph_call], [ours, handler], [], [])

    @property
    def checks(self) -> tuple[ast.stmt, ...]:
        if self._passed is None:
            return ()
        return (ast.If(ast.UnaryOp(ast.Not(), self._passed), self._leave, []),)


def _continuation(writer: FrameWriter) -> ast.expr:
    """The frame's function as it was written, and its arguments."""
    builder, loads = writer.builder, writer.loads
    code, function = plain_code(writer.code), loads.frame.function
    made = call(
        builder.constant(FunctionType, "FunctionType"),
        builder.constant(code, f"code_{code.co_name}"),
        namespace(writer.rebuilder, function.__globals__),
        ast.Constant(function.__name__),
        ast.Constant(None),
        tuple_of(loads.expr(FreeCell(name)) for name in code.co_freevars),
    )
    arguments = tuple_of(loads.expr(Local(name)) for name in code.co_varnames[: code.co_argcount])
    goes_on = builder.constant(runtime.Continue, "Continue")
    plainly = call(builder.constant(native.Disabled, "Disabled"), made)
    return call(goes_on, tuple_of([plainly, arguments]))


def plain_code(code: CodeType) -> CodeType:
    """``code`` with all of its parameters positional: what a frame that has begun can be started with again."""
    extras = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.replace(
        co_argcount=code.co_argcount + code.co_kwonlyargcount + extras,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~_EXTRAS,
    )
