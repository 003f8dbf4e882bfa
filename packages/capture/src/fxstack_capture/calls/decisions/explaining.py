"""Say which rule or case decides a call: ``python -m fxstack_capture rule torch.nn.functional.gelu``.

The answer comes from the rows of ``precedence``, which a trace asks as well. A trace may decide differently
only because of its options, modes, or classes with ``__torch_function__``.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import torch

from fxstack_capture.calls.c_functions import CALLBACKS, CONSUMED, KEEPS_SYMBOLS, MOVES, PURE, traits_of
from fxstack_capture.calls.decisions.precedence import PRECEDENCE, SOURCES, Case, cases_of
from fxstack_capture.torch_side.rules import leaves, table

_PACKAGE = Path(__file__).parents[2]
_FACTS = (
    (PURE, "touches nothing but its arguments"),
    (KEEPS_SYMBOLS, "keeps symbolic numbers"),
    (MOVES, "only moves items"),
)
"""Pairs: a trait that the answer mentions, and the sentence about it."""


class UnknownNameError(Exception):
    """Raised if no callable has the dotted name."""


@dataclass(frozen=True, slots=True)
class Decider:
    """A rule or a case that applies to a callable."""

    name: str
    """The name of the row, for example "pure C function"."""
    does: str
    """What a call does: the text of the case, or the first paragraph of the rule's docstring."""
    place: str
    """The file and the line. The path of a file of this package is relative to the package."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer for one callable."""

    name: str
    """The name that was asked for."""
    kind: str
    """The class of the callable."""
    decided_by: Decider
    """The rule or case that decides."""
    hidden: tuple[Decider, ...]
    """Later rules and cases that apply to the callable as well. A trace never reaches them."""
    facts: tuple[str, ...]
    """Facts about a C function that influence a trace."""
    instead: Explanation | None = None
    """The answer for the callable that is called in place of this one, or None."""

    def text(self) -> str:
        """Return the answer as text in a few lines."""
        lines = [
            f"{self.name} ({self.kind})",
            f"  decided by: {_line(self.decided_by)}",
            f"  a call: {self.decided_by.does}",
            *(f"  fact: {fact}" for fact in self.facts),
            *(f"  hides: {_line(decider)}" for decider in self.hidden),
        ]
        if self.instead is not None:
            lines += [f"  | {line}" for line in self.instead.text().splitlines()]
        return "\n".join(lines)


def _line(decider: Decider) -> str:
    """Return one line with the name and the place of a rule or case."""
    return f"{decider.name}, {decider.place}"


class _Untraced:
    """The part of ``Calls`` that ``Case.find`` uses. It works without a trace."""

    objects = SimpleNamespace(
        classes=SimpleNamespace(lookup=lambda cls, name: inspect.getattr_static(cls, name, None))
    )

    @staticmethod
    def is_leaf(fn: object) -> bool:
        """Whether a trace would record calls of ``fn``, as ``Calls.is_leaf`` says."""
        return bool(leaves.is_operator(fn)) or table.has_rule(fn)


def resolve(name: str) -> object:
    """Return the object with a dotted name: of a module, a builtin (``len``, ``str.join``) or an operator
    (``aten.add``).

    Raises:
        UnknownNameError: no object has the name. The text has the most similar names.
    """
    first, *rest = name.replace("::", ".").split(".")
    value: Any = torch.ops if first in ("aten", "prims") else importlib.import_module("builtins")
    path: list[str] = []
    if not hasattr(value, first):
        value, path = _module(name, first, first, ()), [first]
    for part in [first, *rest][len(path) :]:
        path.append(part)
        if not hasattr(value, part):
            value = _module(name, ".".join(path), part, dir(value))
            continue
        value = getattr(value, part)
    return value


def _module(name: str, path: str, part: str, others: tuple[str, ...] | list[str]) -> Any:
    """Import the module ``path``, which is the start of ``name``.

    Raises:
        UnknownNameError: if there is no such module. The text has the names in ``others`` like ``part``.
    """
    try:
        return importlib.import_module(path)
    except (ImportError, ValueError) as error:  # ValueError: the name has an empty part
        near = difflib.get_close_matches(part, others, 3)
        hint = f"; near are {', '.join(near)}" if near else ""
        cause = f"nothing is called {path}" if part else "a part of the name is empty"
        reason = "" if path == name else f", because {cause}"
        raise UnknownNameError(f"nothing is called {name}{reason}{hint}") from error


def explain(name: str) -> Explanation:
    """Return which rule or case decides a call of the callable with a dotted name.

    Raises:
        UnknownNameError: no object has the name, or the object cannot be called.
    """
    fn = resolve(name)
    if not callable(fn):
        raise UnknownNameError(f"{name} is not called, it is an object of class {type(fn).__qualname__}")
    return explain_callable(fn, name)


def explain_callable(fn: Any, name: str) -> Explanation:
    """Return which rule or case decides a call of ``fn``. ``name`` is the name of ``fn`` in the answer."""
    (case, decider), *others = _deciders(fn)
    instead = None
    inner = case.instead(fn)
    if inner is not None:
        instead = explain_callable(inner, getattr(inner, "__qualname__", repr(inner)))
    hidden = tuple(other for _, other in others)
    return Explanation(name, type(fn).__qualname__, decider, hidden, tuple(_facts_of(fn)), instead)


def _deciders(fn: Any) -> Iterator[tuple[Case, Decider]]:
    """Yield the rules and cases that apply, in order.

    The last case of each kind always applies, so it is yielded only if it decides.
    """
    holds = False
    *cases, last = (*PRECEDENCE[: len(SOURCES)], *cases_of(fn))
    for case in (*cases, last):
        rule = None if case is last and holds else case.find(_Untraced, fn)
        if rule is not None:
            holds = True
            yield case, Decider(case.name, case.does or _sentence(rule), _place(rule))


def _sentence(rule: Any) -> str:
    """Return the first paragraph of the rule's docstring, or of the docstring of its module."""
    fn = _function(rule)
    doc = inspect.getdoc(fn) or f"{fn.__name__}: {sys.modules[fn.__module__].__doc__}"
    return " ".join(doc.split("\n\n")[0].split()).rstrip(".")


def _function(rule: Any) -> Any:
    """Return the Python function in a rule. The rule may be a partial object, a decorated function or an
    object with ``__call__``.
    """
    while isinstance(rule, functools.partial):
        rule = rule.func
    rule = inspect.unwrap(rule)
    return rule if isinstance(rule, FunctionType) else type(rule).__call__


def _place(rule: Any) -> str:
    """Return the file and first line of a rule, for example "calls/rules/builtins/classes.py:40". "" if it is
    C code.
    """
    code = getattr(_function(rule), "__code__", None)
    if not isinstance(code, CodeType):
        return ""
    file = Path(code.co_filename)
    shown = file.relative_to(_PACKAGE) if file.is_relative_to(_PACKAGE) else file
    return f"{shown.as_posix()}:{code.co_firstlineno}"


def _facts_of(fn: Any) -> Iterator[str]:
    """Yield sentences about ``fn``, from the facts in ``c_functions``."""
    traits = traits_of(fn)
    yield from (text for bit, text in _FACTS if traits & bit)
    callbacks = CALLBACKS.get(id(fn))
    if callbacks is not None:
        where = [f"argument {n + 1}" for n in callbacks.positions] + [f"{n}=" for n in callbacks.keywords]
        yield f"calls {' or '.join(where)}, which the interpreter runs"
    if id(fn) in CONSUMED:
        yield "does nothing but iterate over some arguments"
