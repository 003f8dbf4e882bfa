"""The fallback to eager: a frame whose graph raised, or whose assumption failed, runs in plain Python.

A graph that can fall back writes nothing outside of itself (``torch_side.recording.assumptions``). So the
frame has had no side effect, and the original code runs from its beginning with the original arguments and
cells. Plain Python repeats the program's side effects before the error. The program's own handlers get the
error.
"""

from __future__ import annotations

import ast
from types import CodeType

from fxstack_capture.bytecode.arguments import argument_names, with_positional_arguments
from fxstack_capture.emit import runtime
from fxstack_capture.emit.builder import Builder, call, load, store, tuple_of
from fxstack_capture.emit.endings.graph_errors import GraphErrors, leaving_by
from fxstack_capture.emit.loads import Loads
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.sources import FreeCell, Globals, Local


def fallback(
    code: CodeType,
    builder: Builder,
    frame: RealFrame,
    states: ast.expr,
    passed: ast.expr | None,
    *,
    draws: bool,
    handles: bool,
) -> GraphErrors:
    """Return the statements that run the frame in plain Python if the graph raises or an assumption fails.

    ``FrameWriter.finish`` calls this. ``states`` is the expression of the generator states before the frame's
    own draws. ``passed`` is the expression that says whether all assumptions hold, or None without
    assumptions. ``draws``: the graph draws random numbers. ``handles``: the program may handle an error of
    the graph.
    """
    leave = runtime.way_back(with_positional_arguments(code), frame.function.__name__, handles=handles)
    function = builder.constant(leave, "way_back")
    before: tuple[ast.stmt, ...] = ()
    if draws:
        name = builder.fresh("random_state")
        read = builder.constant(runtime.default_state, "read_random_state")
        before = (ast.Assign([store(name)], call(read)),)
        states = ast.BinOp(load(name), ast.Add(), states)
    kept, builder.loads = builder.loads, []
    loads = Loads(builder, frame)  # The reads by ``loads`` run only if the frame falls back.
    arguments = [loads.expr(Local(name)) for name in argument_names(code)]
    cells = [loads.expr(FreeCell(name)) for name in code.co_freevars]
    original_call = loads.expr(Globals()), tuple_of(cells), tuple_of(arguments)
    reloads, builder.loads = builder.loads, kept

    def leaving(error: ast.expr) -> list[ast.stmt]:
        """Return the statements that run the original code from its start.

        ``error`` is the expression of the graph's error. If an assumption failed, this is the expression of
        None.
        """
        return [*reloads, ast.Return(call(function, *original_call, states, error))]

    handler = leaving_by(builder, leaving)
    if passed is None:
        return GraphErrors(handler, before)
    failed = ast.UnaryOp(ast.Not(), passed)
    return GraphErrors(handler, before, (ast.If(failed, leaving(ast.Constant(None)), []),))
