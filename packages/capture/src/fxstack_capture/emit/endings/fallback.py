"""The fallback to eager: a frame whose graph raised, or whose assumption failed, runs in plain Python.

The frame has had no side effect by then (``torch_side.recording.assumptions``). Therefore the original code
starts from its beginning, with the original arguments and cells. The program's side effects before an error
happen, and the program's own handlers see the error.
"""

from __future__ import annotations

import ast
from types import CodeType

from fxstack_capture.bytecode.arguments import argument_names, with_positional_arguments
from fxstack_capture.emit import runtime
from fxstack_capture.emit.builder import Builder, call, load, store, tuple_of
from fxstack_capture.emit.loads import Loads
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.sources import FreeCell, Globals, Local

_NOTHING = ast.Constant(None)


class Fallback:
    """Statements ``before`` the graph call, a ``try`` around the call (``guarded``), and later ``checks``.

    ``passed`` is the expression that says whether the assumptions hold. ``draws``: the graph draws random
    numbers. ``handles``: the program may handle an error of the graph. ``states`` are the states of the
    generators from which the frame itself draws.
    """

    def __init__(
        self,
        code: CodeType,
        builder: Builder,
        frame: RealFrame,
        states: ast.expr,
        passed: ast.expr | None,
        *,
        draws: bool,
        handles: bool,
    ) -> None:
        function = frame.function
        leave = runtime.way_back(with_positional_arguments(code), function.__name__, handles=handles)
        self._leave = builder.constant(leave, "way_back")
        self._exception = builder.constant(Exception, "Exception")
        self._error = builder.fresh("error")
        self._passed = passed
        self._states = states
        self.before: tuple[ast.stmt, ...] = ()
        if draws:
            name = builder.fresh("random_state")
            read = builder.constant(runtime.default_state, "read_random_state")
            self.before = (ast.Assign([store(name)], call(read)),)
            self._states = ast.BinOp(load(name), ast.Add(), states)
        kept, builder.loads = builder.loads, []
        loads = Loads(builder, frame)  # what it reads is read when it is needed
        arguments = [loads.expr(Local(name)) for name in argument_names(code)]
        cells = [loads.expr(FreeCell(name)) for name in code.co_freevars]
        self._given = loads.expr(Globals()), tuple_of(cells), tuple_of(arguments)
        self._loads, builder.loads = builder.loads, kept

    def guarded(self, graph_call: ast.stmt) -> ast.stmt:
        handler = ast.ExceptHandler(self._exception, self._error, self._leaving(load(self._error)))
        return ast.Try([graph_call], [handler], [], [])

    @property
    def checks(self) -> tuple[ast.stmt, ...]:
        if self._passed is None:
            return ()
        return (ast.If(ast.UnaryOp(ast.Not(), self._passed), self._leaving(_NOTHING), []),)

    def _leaving(self, error: ast.expr) -> list[ast.stmt]:
        return [*self._loads, ast.Return(call(self._leave, *self._given, self._states, error))]
