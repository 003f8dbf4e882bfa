"""Replacements of frames: load inputs, call the graph, rebuild values, replay side effects, end the frame.

The frame ends with a ``return`` (``draft_return``), or with a graph break: the operation that broke the
graph, and a continuation (``draft_stop`` in ``breaking``). A draft is a replacement without its compiled
graph. The draft is written while the trace exists. The graph is compiled later, after torch's state has been
restored to the caller's.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from types import CodeType
from typing import Any

from fxstack_capture.emit.builder import (
    Builder,
    call,
    drop,
    item,
    load,
    loaded_names,
    store,
    stored_names,
    tuple_of,
)
from fxstack_capture.emit.code import compile_replacement, text_of
from fxstack_capture.emit.effects import Replay
from fxstack_capture.emit.endings.fallback import fallback
from fxstack_capture.emit.endings.graph_errors import GraphErrors, located_errors, restore_state_on_error
from fxstack_capture.emit.errors import CannotRebuildError, CycleError
from fxstack_capture.emit.loads import Loads
from fxstack_capture.emit.rebuild.rebuilder import Rebuilder
from fxstack_capture.emit.rebuild.rules import rule_for
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.sources import Drawn, Item, Local, Pinned, Source
from fxstack_capture.torch_side.global_state.state import changed_by
from fxstack_capture.torch_side.recording.assumptions import HandledError
from fxstack_capture.torch_side.recording.graph import SYMBOLIC
from fxstack_capture.trace.effect_diff import diff
from fxstack_capture.trace.records import CapturedCode
from fxstack_capture.trace.state import Trace


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of the graph that the guard check has read.

    The guard check stores the inputs as a tuple in the local variable ``name``.
    """

    name: str
    """The name of the local variable."""
    sources: tuple[Source, ...]
    """The source of each item of the tuple, in the order of the graph's inputs.

    The tuple lacks the inputs that the frame draws from a random generator, because guards run before the draws.
    """

    @property
    def text(self) -> str:
        """The content of the variable as text, for messages."""
        names = ", ".join(source.name for source in self.sources)
        return f"# {self.name} = ({names}), read by the guards"


@dataclass(frozen=True, slots=True)
class Emitted:
    """A replacement, and the data for its text: the tree, and the constants with their names."""

    code: CodeType
    tree: ast.FunctionDef | None = None
    """The syntax tree of the replacement, for its text; None if the replacement has no text."""
    names: tuple[tuple[str, object], ...] = ()
    """The constants of the replacement with their names."""
    inputs: Inputs | None = None
    """The inputs that the guard check stores in the frame, or None."""

    @property
    def text(self) -> str:
        """Python-like text of the replacement."""
        if self.tree is None:
            return ""
        text = text_of(self.tree, self.names)
        return text if self.inputs is None else f"{self.inputs.text}\n{text}"


@dataclass(frozen=True, slots=True)
class Draft:
    """A replacement without its compiled graph.

    The driver compiles the graph and calls ``complete``. ``captured`` is None if the trace recorded no torch
    operation and the graph has no output.
    """

    captured: CapturedCode | None
    original: CodeType
    """The code that the replacement replaces: the user's, or that of a resume function."""
    builder: Builder
    before: tuple[ast.stmt, ...]
    """The statements before the call of the graph."""
    graph_call: Callable[[ast.expr], ast.stmt]
    """Takes the expression of the compiled graph, and returns the statement that calls the graph."""
    after: tuple[ast.stmt, ...]
    """The statements after the call of the graph, including the end of the frame."""
    line: int
    """The line of the replacement in tracebacks."""
    inputs: Inputs | None = None
    """The inputs that the guard check stores in the frame, or None if the replacement reads them itself."""
    has_effects: bool = False
    """Whether the replacement changes objects of the program after the graph."""

    def complete(self, graph: Callable[..., Any] | None) -> Emitted:
        """Return the finished replacement.

        ``graph`` is the compiled graph, or None if the draft needs no graph. The driver calls this method
        after it has compiled the graph.
        """
        middle = [] if graph is None else [self.graph_call(self.builder.constant(graph, "graph"))]
        statements = [*self.before, *middle, *self.after]
        inputs = None if graph is None else self.inputs
        name = None if inputs is None else inputs.name
        code, tree = compile_replacement(self.original, self.builder, statements, self.line, name)
        return Emitted(code, tree, tuple(self.builder.named_constants().items()), inputs)


class FrameWriter:
    """Writer of one draft.

    Callers get the expressions of values from ``rebuilder``, then call ``finish``. ``early`` is the argument
    of ``Rebuilder``.
    """

    def __init__(self, trace: Trace, frame: RealFrame, code: CodeType, early: bool) -> None:
        self.trace = trace
        self.code = code
        self.builder = Builder((*code.co_varnames, *code.co_freevars, *code.co_cellvars))
        self.loads = Loads(self.builder, frame)
        draws = trace.objects.draws.made
        self.states: ast.expr = tuple_of(())
        """The expression of the generator states before the frame draws.

        An empty tuple if the frame draws nothing or cannot fall back to eager.
        """
        assumptions = trace.torch.assumptions
        if draws and (assumptions.passed is not None or assumptions.handled):
            self.states = self.loads.states(draws)
        self.loads.draw(draws)
        self.rebuilder = Rebuilder(trace, self.builder, self.loads, rule_for, early)
        self.replay = Replay(self.rebuilder)

    def finish(
        self, end: Callable[[FrameWriter], list[ast.stmt]], line: int, released: tuple[str, ...] = ()
    ) -> Draft:
        """Replay the side effects, append the statements of ``end``, and return the draft.

        ``end`` is called when all values are known. ``released`` are the names of arguments that the program
        has already released at the end of the trace.
        """
        torch_side = self.trace.torch
        self.replay.prepare(diff(self.trace.objects), torch_side.state_delta())
        self.replay.prepare_attributes(torch_side.attribute_writes)
        registry: Any = self.trace.objects.registry
        self.replay.prepare_tracebacks(list(registry.by_proxy.values()))
        self.rebuilder.finish()
        ending = end(self)
        ways = self._fallback()
        captured = torch_side.finish(self.rebuilder.outputs)
        needed = has_operations(captured) or bool(self.rebuilder.outputs)
        sources = captured.inputs if needed else ()
        inputs, arguments = self._arguments(sources)
        # The operation at the end of the frame may run for a long time, so release the inputs before it.
        free = [] if inputs is None else [ast.Assign([store(inputs.name)], ast.Constant(None))]
        result = self.rebuilder.result

        def graph_call(graph: ast.expr) -> ast.stmt:
            """Return the statement that calls the graph, inside of all error handlers."""
            called: ast.stmt = ast.Assign([store(result)], call(graph, *arguments))
            return reduce(lambda inner, way: way.guarded(inner), ways, called)

        graph = captured.graph_module.graph
        if not ways and needed and self.trace.for_entry:
            ways = [located_errors(self.builder, graph)]
        if needed and (changed := changed_by(graph)):
            ways = [restore_state_on_error(self.builder, changed), *ways]
        checks = [part for way in ways for part in way.checks]
        effects = self.replay.statements()
        done = [*self.builder.loads, *self.builder.body, *effects]
        held = {*stored_names(done), *((result,) if needed else ()), *released}.difference(
            loaded_names(ending), self.code.co_freevars
        )
        dropped = [] if isinstance(ending[0], ast.Return) else drop(sorted(held))
        return Draft(
            captured=captured if needed else None,
            original=self.code,
            builder=self.builder,
            before=(*self.builder.loads, *(part for way in reversed(ways) for part in way.before)),
            graph_call=graph_call,
            inputs=inputs,
            after=(*free, *self.builder.body, *checks, *effects, *dropped, *ending),
            line=line,
            has_effects=bool(effects),
        )

    def _arguments(self, sources: tuple[Source, ...]) -> tuple[Inputs | None, list[ast.expr]]:
        """Return the record of the inputs (or None) and the expressions of the graph's arguments.

        The record says which inputs the guard check stores. Without a record, the replacement reads the
        inputs from the frame.
        """
        if not self.trace.for_entry or not _should_collect(sources):
            return None, [self.loads.expr(source) for source in sources]
        read = tuple(source for source in sources if not _is_drawn(source))
        inputs = Inputs(self.builder.fresh("inputs"), read)
        return inputs, self._arguments_from_guards(inputs, sources)

    def _arguments_from_guards(self, inputs: Inputs, sources: tuple[Source, ...]) -> list[ast.expr]:
        """Return the expressions of the graph's arguments. Guards have read the inputs; the frame draws
        random numbers.
        """
        if len(inputs.sources) == len(sources):
            return [ast.Starred(load(inputs.name), ast.Load())]
        positions = {source: position for position, source in enumerate(inputs.sources)}
        return [
            item(load(inputs.name), ast.Constant(positions[source]))
            if source in positions
            else self.loads.expr(source)
            for source in sources
        ]

    def _fallback(self) -> list[GraphErrors]:
        """Return a list with the fallback to eager, or an empty list if no fallback is needed.

        Raises ``RefusedError`` if the trace has assumptions and the effects of the graph cannot be undone.
        Raises ``HandledError`` if the program may handle an error of such a graph.
        """
        trace, assumptions = self.trace, self.trace.torch.assumptions
        handles = trace.interp.handles
        if assumptions.passed is not None:
            assumptions.demand_retractable()
        elif not trace.may_fall_back or not assumptions.retractable:
            if trace.may_fall_back and assumptions.handled and not trace.options.fullgraph:
                raise HandledError(assumptions.handled_calls)
            return []
        elif trace.objects.draws.made and not assumptions.handled:
            return []  # no generator states are kept for an error that the program does not handle
        elif assumptions.draws and not handles:
            return []  # reading the generator's state takes 1 to 2 microseconds per call
        passed = None if assumptions.passed is None else self.rebuilder.expr(assumptions.passed)
        origin = self.code, self.builder, self.loads.frame, self.states
        return [fallback(*origin, passed, draws=assumptions.draws, handles=handles)]


def _is_drawn(source: Source) -> bool:
    """Return whether the frame draws the value from a random generator. The guards run earlier and do not
    have it.
    """
    while isinstance(source, Item):
        source = source.of
    return isinstance(source, Drawn)


def _should_collect(sources: tuple[Source, ...]) -> bool:
    """Return whether the guard check should store the inputs. Arguments and pinned values need no storing."""
    return any(not isinstance(source, (Local, Pinned)) for source in sources if not _is_drawn(source))


def has_operations(captured: CapturedCode) -> bool:
    """Return whether the graph does more than return its inputs.

    If the graph has no operations and no outputs, no graph is compiled.
    """
    nodes = captured.graph_module.graph.nodes
    return any(node.op not in ("placeholder", "output", "get_attr") for node in nodes)


def computes_numbers_only(captured: CapturedCode) -> bool:
    """Return whether the graph has only arithmetic on Python numbers. A frame is not compiled for such a
    graph.
    """
    # Plain Python is faster for such numbers and needs no guards.
    nodes = [node for node in captured.graph_module.graph.nodes if node.op != "output"]
    return all(isinstance(node.meta.get("val"), SYMBOLIC) for node in nodes)


def with_cycles(write: Callable[[bool], Draft]) -> Draft:
    """Return the draft that ``write`` writes. Raises CannotRebuildError if both tries fail.

    ``write`` takes the argument ``early`` of ``Rebuilder``. The first try writes objects as displays. If an
    immutable object contains itself, the second try makes mutable objects empty first.
    """
    try:
        return write(False)
    except CycleError:
        pass
    try:
        return write(True)
    except CycleError:
        raise CannotRebuildError("an object that contains itself") from None


def draft_return(trace: Trace, frame: RealFrame, code: CodeType, value: object) -> Draft:
    """Return the replacement of a frame that the trace ran to its end. ``value`` is the object that it returned."""

    def write(early: bool) -> Draft:
        """Return the draft. ``early`` is the argument of ``Rebuilder``."""
        writer = FrameWriter(trace, frame, code, early)
        result = writer.rebuilder.expr(value)
        return writer.finish(lambda _: [ast.Return(result)], code.co_firstlineno)

    return with_cycles(write)
