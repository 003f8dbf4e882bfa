"""Values of the trace as expressions. Each object has one expression, so identity and aliasing are kept.

The rebuilder tries four ways in this order: reload the value by its source, take it from an output of the
graph, use a constant, call the rule of its class (``rules``). A rule takes the rebuilder and the object and
returns the expression.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.emit.builder import Builder, call, item
from fxstack_capture.emit.errors import CycleError
from fxstack_capture.emit.loads import Loads
from fxstack_capture.sources import Source
from fxstack_capture.trace.records import Construction, DeferredLocal
from fxstack_capture.trace.state import Trace
from fxstack_interchange.format.literals import PYTHON_LITERALS


class Rebuilder:
    """Emit values into ``builder.body``, and collect the tensors and symbolic numbers that the graph has to
    return.

    If ``early``, a mutable object is made empty at first and filled at the end (``finish``), so that a cycle
    through a tuple can be built. Otherwise a mutable object is written as a display if possible. ``rule_for``
    returns the rule of a class (``rules.rule_for``).
    """

    def __init__(
        self, trace: Trace, builder: Builder, loads: Loads, rule_for: Callable[[type], Rule], early: bool
    ) -> None:
        self.trace = trace
        self.builder = builder
        self.loads = loads
        self.early = early
        self._rule_for = rule_for
        self.outputs: list[Any] = []
        """The tensors and symbolic numbers that the graph returns, in order."""
        self.result = builder.fresh("out")
        """The name of the variable that holds the outputs of the graph."""
        self._output_of: dict[Any, ast.expr] = {}
        """Maps the id of a tensor, or the type and expression of a number, to the expression of its graph
        output.
        """
        self._known: dict[int, ast.expr] = {}
        """Maps the id of an object to its expression."""
        self._keep: list[object] = []
        self._open: dict[int, Callable[[], ast.expr] | None] = {}
        """Maps the id of an object that is being rebuilt to the function that makes it empty. None if the
        object cannot start empty.
        """
        self._fills: list[Callable[[], None]] = []
        """Functions that emit the contents of the objects that were made empty. ``finish`` calls them."""

    def expr(self, obj: Any) -> ast.expr:
        """Return a name or literal for ``obj``, any object of the trace.

        The first call for an object emits its construction.
        """
        if type(obj) in PYTHON_LITERALS:
            # Literals need no variable. An int or a text is no plain literal if it contains the ``id`` of a
            # proxy, because only this trace has the proxy.
            write = _LITERALS.get(type(obj))
            return ast.Constant(obj) if write is None else write(self, obj)
        expression = self._known.get(id(obj))
        if expression is None:
            expression = self._make(obj)
            self.remember(obj, expression)
        return expression

    def _integer(self, number: int) -> ast.expr:
        """Return an expression for an int.

        If the int is a recorded ``id`` or ``hash`` of a proxy, the expression calls ``id`` or ``hash`` on the
        real object.
        """
        address = self.trace.objects.addresses.found(number)
        if address is None:
            return ast.Constant(number)
        return self._address(*address)

    def _text(self, text: str) -> ast.expr:
        """Return an expression for a text.

        If the text contains a recorded ``id`` or ``hash`` of a proxy, the expression computes this part from
        the real object.
        """
        parts: list[ast.expr] = []
        end = 0
        for match, function, obj in self.trace.objects.addresses.in_text(text):
            parts.append(ast.Constant(text[end : match.start()]))
            form = ast.JoinedStr([ast.Constant("#x")]) if match[0].startswith("0x") else None
            parts.append(ast.FormattedValue(self._address(function, obj), -1, form))
            end = match.end()
        return ast.JoinedStr([*parts, ast.Constant(text[end:])]) if parts else ast.Constant(text)

    def _address(self, function: Callable[[Any], int], obj: object) -> ast.expr:
        """Emit the call of ``function``, which is ``id`` or ``hash``, on the real object of ``obj``."""
        rebuilt = call(self.constant(function, function.__name__), self.expr(obj))
        return self.assign(rebuilt, "address")

    def remember(self, obj: object, rebuilt: ast.expr) -> None:
        """Register the expression of ``obj``, so that later uses get the same object.

        A rule calls this before it rebuilds parts that may refer to ``obj``.
        """
        self._known[id(obj)] = rebuilt
        # The tables are keyed by ids, so the objects must live as long as the tables.
        self._keep.append(obj)

    def assign(self, value: ast.expr, hint: str) -> ast.expr:
        """Assign ``value`` to a new variable in ``body`` and return the variable."""
        return self.builder.assign(self.builder.body, value, hint)

    def constant(self, value: object, hint: str) -> ast.expr:
        """Return an expression for ``value`` as a constant of the replacement."""
        return self.builder.constant(value, hint)

    # --- mutable objects -----------------------------------------------------------------------

    def mutable(
        self,
        obj: object,
        display: Callable[[], ast.expr],
        empty: Callable[[], ast.expr],
        fill: Callable[[ast.expr], None],
    ) -> ast.expr:
        """Make ``obj`` by ``display``. If ``early`` or if ``obj`` contains itself, make it by ``empty`` and
        ``fill``.

        Rules call this. ``display`` returns the expression of the full object. ``empty`` returns the
        expression of an empty object. ``fill`` emits the contents.
        """
        hint = type(obj).__name__

        def begin() -> ast.expr:
            """Make the empty object and register it, so that a cycle finds it."""
            rebuilt = self.assign(empty(), hint)
            self.remember(obj, rebuilt)
            self._open[id(obj)] = None
            return rebuilt

        if self.early:
            rebuilt = begin()
            self._fills.append(lambda: fill(rebuilt))
            return rebuilt
        self._open[id(obj)] = begin
        value = display()
        self._open.pop(id(obj))
        started = self._known.get(id(obj))
        if started is None:
            return self.assign(value, hint)
        fill(started)
        return started

    def finish(self) -> None:
        """Emit the contents of the objects that were made empty.

        ``FrameWriter.finish`` calls this after it has asked for all values.
        """
        while self._fills:
            self._fills.pop(0)()

    # --- kinds ---------------------------------------------------------------------------------

    def _make(self, obj: object) -> ast.expr:
        """Emit an object that has no expression yet. Return its expression."""
        if id(obj) in self._open:
            begin = self._open[id(obj)]
            # An immutable object that contains itself cannot be built in one step. A mutable object can start empty.
            if begin is None:
                raise CycleError
            return begin()
        if type(obj) is DeferredLocal:
            return self.loads.expr(obj.source)
        # The source comes before the rules: an object from outside must stay the same object.
        source = self.source_of(obj)
        if source is not None:
            return self.loads.expr(source)
        if self.trace.torch.is_symbolic(obj):
            drawn = self.trace.torch.drawn_at(obj)
            return self.output(obj) if drawn is None else self.loads.expr(drawn)
        if issubclass(type(obj), torch.Tensor):
            made_of = self.trace.torch.overrides.leaving(obj)
            if made_of is not None:
                of, finish = made_of
                rebuilt = call(self.constant(finish, finish.__name__), self.expr(of))
                return self.assign(rebuilt, finish.__name__)
            construction = self.trace.torch.construction_of(obj)
            if construction is not None:
                return self._construct(construction)
            return self.output(obj)
        rule = self._rule_for(type(obj))
        self._open[id(obj)] = None
        rebuilt = rule(self, obj)
        self._open.pop(id(obj), None)
        return rebuilt

    def _construct(self, construction: Construction) -> ast.expr:
        """Emit the construction of a tensor of a wrapper subclass. The replayed attribute writes set its
        attributes later.
        """
        keywords = [ast.keyword(name, self.expr(value)) for name, value in construction.keywords.items()]
        arguments = [self.expr(value) for value in construction.arguments]
        name = type(construction.made).__name__
        maker = self.constant(construction.function, construction.function.__name__)
        return self.assign(ast.Call(maker, arguments, keywords), name)

    def source_of(self, obj: object) -> Source | None:
        """Return the source of a proxy, or None for an object that was made during the trace.

        An object without a source must be rebuilt.
        """
        source = self.trace.objects.source_of(obj)
        if source is None and issubclass(type(obj), torch.Tensor):
            return self.trace.torch.source_of(obj)
        return source

    def is_made(self, obj: object) -> bool:
        """Return whether code for ``obj`` has been emitted, so that it leaves the frame."""
        return id(obj) in self._known

    def output(self, value: Any) -> ast.expr:
        """Return the expression of the graph output that holds a tensor or symbolic number.

        The first call adds the output.
        """
        # Several wrappers of symbolic numbers may have one expression. They share one graph output.
        key = id(value) if isinstance(value, torch.Tensor) else (type(value), value.node.expr)
        output = self._output_of.get(key)
        if output is None:
            index = len(self.outputs)
            finish = None
            if isinstance(value, torch.Tensor):
                value, finish = self.trace.torch.leaving(value)
            self.outputs.append(value)
            value_at = item(ast.Name(self.result, ast.Load()), ast.Constant(index))
            if finish is not None:
                value_at = call(self.constant(finish, finish.__name__), value_at)
            output = self._output_of[key] = self.assign(value_at, f"out{index}")
        return output


Rule = Callable[[Rebuilder, Any], ast.expr]
"""Rebuilds an object: emits the statements that the expression needs, and returns the expression."""

_LITERALS: dict[type, Callable[[Rebuilder, Any], ast.expr]] = {int: Rebuilder._integer, str: Rebuilder._text}
