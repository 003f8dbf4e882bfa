"""Rules for generators of the trace. A rule makes a real generator in the same state."""

from __future__ import annotations

import ast
from types import CellType, CodeType, FunctionType
from typing import Any

from fxstack_capture.bytecode.arguments import with_positional_arguments
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.emit import runtime
from fxstack_capture.emit.builder import call, tuple_of
from fxstack_capture.emit.errors import CannotRebuildError, CannotResumeError
from fxstack_capture.emit.generators import suspended_at
from fxstack_capture.emit.rebuild.containers import called, exprs
from fxstack_capture.emit.rebuild.functions import namespace
from fxstack_capture.emit.rebuild.rebuilder import Rebuilder, Rule
from fxstack_capture.emit.resume import Slot, bound_order
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.generators import TraceGenerator


def _generator(rebuilder: Rebuilder, generator: TraceGenerator) -> ast.expr:
    """Rebuild a generator that has finished, is suspended, or has not started.

    Raises CannotRebuildError if the generator is running.
    """
    frame = generator.frame
    if frame is None:
        return called(rebuilder, runtime.finished_generator, hint="generator")
    if generator.gi_running:
        raise CannotRebuildError(f"the generator {generator.__qualname__} while it runs")
    return (
        _rebuild_suspended(rebuilder, frame) if generator.gi_suspended else _rebuild_fresh(rebuilder, frame)
    )


def _rebuild_fresh(rebuilder: Rebuilder, frame: Frame) -> ast.expr:
    """Rebuild a generator that has not started: call its function with the current argument values."""
    flat = with_positional_arguments(frame.code)
    values = exprs(rebuilder, map(frame.value_of, range(flat.co_argcount)))
    function = _function(rebuilder, frame, flat, frame.closure)
    return rebuilder.assign(call(function, *values), "generator")


def _rebuild_suspended(rebuilder: Rebuilder, frame: Frame) -> ast.expr:
    """Rebuild a suspended generator: make a generator whose code begins at the yield, and advance it to the
    yield. Raises CannotRebuildError if it waits in an ``except`` block.
    """
    if frame.handling:
        raise CannotRebuildError(f"the generator {frame.code.co_qualname} inside an except block")
    cells = {
        name: value
        for name, value in zip(frame.program.names, frame.fast, strict=True)
        if type(value) is CellType
    }
    values = {
        name: value
        for name, value in zip(frame.program.names, frame.fast, strict=True)
        if value is not NULL and name not in cells
    }
    bound = bound_order(frame.code, frozenset(values))
    slots = tuple(Slot.NULL if value is NULL else Slot.VALUE for value in frame.stack)
    try:
        suspension = suspended_at(frame.code, frame.program.offsets[frame.pc], slots, bound)
    except CannotResumeError as error:
        raise CannotRebuildError(str(error)) from None
    stack = [value for value in frame.stack if value is not NULL]
    arguments = exprs(rebuilder, [*stack, *(values[name] for name in bound)])
    function = _function(rebuilder, frame, suspension.code, tuple(cells[name] for name in suspension.free))
    generator = rebuilder.assign(call(function, *arguments), "generator")
    rebuilder.builder.run(call(rebuilder.constant(next, "next"), generator))
    return generator


def _function(rebuilder: Rebuilder, frame: Frame, code: CodeType, closure: tuple[Any, ...]) -> ast.expr:
    """Return the call that makes a function of ``code`` with the globals of ``frame`` and the rebuilt cells
    ``closure``.
    """
    make = rebuilder.constant(FunctionType, "FunctionType")
    cells = tuple_of(exprs(rebuilder, closure)) if closure else ast.Constant(None)
    body = rebuilder.constant(code, f"code_{code.co_name}")
    names = namespace(rebuilder, frame.globals)
    return call(make, body, names, ast.Constant(code.co_name), ast.Constant(None), cells)


RULES: dict[type, Rule] = {TraceGenerator: _generator}
