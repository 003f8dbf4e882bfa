"""Statements of a replacement under construction: names, constants, and the order of the sections.

A replacement runs ``loads``, then the graph, then ``body``. ``loads`` reads every value that has a source;
these values are in the state at the start of the frame. ``body`` rebuilds values, replays side effects and
ends the frame. An object that has no Python literal becomes a constant of the code object. The replacement
assigns the constant to a name once, at its top.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from fxstack_interchange.format.literals import PYTHON_LITERALS

_MARK = "\0fxstack constant "


class Builder:
    """The names and statements of one replacement.

    ``taken`` are the names of the user's variables. ``fresh`` never returns one of them.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._constants: dict[int, tuple[str, object]] = {}
        self._counter = 0
        self.loads: list[ast.stmt] = []
        """The statements before the graph, which read every value that has a source."""
        self.body: list[ast.stmt] = []
        """The statements after the graph."""

    def fresh(self, hint: str) -> str:
        """Return a name that neither the user's code nor the replacement uses, for example ``_out0_3`` for the
        hint ``out0``.
        """
        stem = "".join(c if c.isalnum() else "_" for c in hint)[:40].strip("_") or "value"
        while True:
            self._counter += 1
            name = f"_{stem}_{self._counter}"
            if name not in self._taken:
                self._taken.add(name)
                return name

    def constant(self, value: Any, hint: str) -> ast.expr:
        """Return an expression for any object: a literal, or a name that the replacement assigns at its top.

        ``hint`` becomes part of the name.
        """
        if type(value) in PYTHON_LITERALS:
            return ast.Constant(value)
        name = self._constants.get(id(value))
        if name is None:
            name = self._constants[id(value)] = (self.fresh(hint), value)
        return load(name[0])

    def assign(self, section: list[ast.stmt], value: ast.expr, hint: str) -> ast.expr:
        """Append a statement to ``section`` (``loads`` or ``body``) that evaluates ``value`` once.

        Return the name that holds the result. ``hint`` becomes part of the name.
        """
        name = self.fresh(hint)
        section.append(ast.Assign([store(name)], value))
        return load(name)

    def run(self, value: ast.expr) -> None:
        """Append a statement to ``body`` that evaluates ``value`` for its side effect."""
        self.body.append(ast.Expr(value))

    def constants(self) -> tuple[list[ast.stmt], dict[str, object]]:
        """Return the assignments of the constants at the top of a replacement, and a dictionary mark ->
        constant.

        Each assignment contains a mark, a text. ``compile_replacement`` puts the constant in the place of the
        mark in the compiled code.
        """
        statements: list[ast.stmt] = []
        marks: dict[str, object] = {}
        for index, (name, value) in enumerate(self._constants.values()):
            mark = f"{_MARK}{index}"
            marks[mark] = value
            statements.append(ast.Assign([store(name)], ast.Constant(mark)))
        return statements, marks

    def named_constants(self) -> dict[str, object]:
        """Return name -> object for the names that are assigned at the top. The printed text of a replacement
        uses them.
        """
        return dict(self._constants.values())


def load(name: str) -> ast.expr:
    """Return the expression that reads the variable ``name``."""
    return ast.Name(name, ast.Load())


def store(name: str) -> ast.expr:
    """Return the assignment target for the variable ``name``."""
    return ast.Name(name, ast.Store())


def call(fn: ast.expr, *args: ast.expr) -> ast.expr:
    """Return a call of ``fn`` with positional arguments."""
    return ast.Call(fn, list(args), [])


def attribute(value: ast.expr, name: str) -> ast.expr:
    """Return ``value.name``."""
    return ast.Attribute(value, name, ast.Load())


def item(value: ast.expr, key: ast.expr) -> ast.expr:
    """Return ``value[key]``."""
    return ast.Subscript(value, key, ast.Load())


def stored_names(statements: Iterable[ast.stmt]) -> set[str]:
    """Return the names of the variables that the statements assign."""
    return {name for name, context in _names(statements) if isinstance(context, ast.Store)}


def loaded_names(statements: Iterable[ast.stmt]) -> set[str]:
    """Return the names of the variables that the statements read."""
    return {name for name, context in _names(statements) if isinstance(context, ast.Load)}


def _names(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr_context]]:
    """Yield (name, context) for each variable name in the statements. The context distinguishes reads from
    assignments.
    """
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                yield node.id, node.ctx


def drop(names: Iterable[str]) -> list[ast.stmt]:
    """Return the statements that release the values of the variables ``names``. A variable may be unbound."""
    targets: list[ast.expr] = [store(name) for name in names]
    # Assigning None also works for an unbound variable; ``del`` raises an error.
    return [ast.Assign(targets, ast.Constant(None))] if targets else []


def tuple_of(values: Iterable[ast.expr]) -> ast.expr:
    """Return a tuple display of the values."""
    return ast.Tuple(list(values), ast.Load())
