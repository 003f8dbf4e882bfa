"""Replacement code that replays side effects. The code is a list of primitive writes, in order. The writes
run after all values are built.
"""

from __future__ import annotations

import ast
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from fxstack_capture.emit.builder import call, tuple_of
from fxstack_capture.emit.rebuild.instances import traceback_of
from fxstack_capture.emit.rebuild.rebuilder import Rebuilder
from fxstack_capture.emit.runtime import advanced
from fxstack_capture.trace import effects as r

Statements = list[ast.stmt]


class Replay:
    """The writes of a trace, which the ``prepare`` methods collect and ``statements`` returns.

    The ``prepare`` methods emit the construction of the written values first. The collected statements are
    only the writes.
    """

    def __init__(self, rebuilder: Rebuilder) -> None:
        self._rebuilder = rebuilder
        self._writes: Statements = []

    def prepare(self, effects: Iterable[r.Effect], redo: Iterable[tuple[Any, tuple[Any, ...]]]) -> None:
        """Prepare the side effects ``effects``, then the calls ``redo``.

        Each item of ``redo`` is (function, arguments). The calls set torch's state to the state that the
        program left.
        """
        for effect in effects:
            target = self._rebuilder.loads.expr(effect.target)
            kind = self._rebuilder.loads.kind_of(effect.target)
            self._writes += _WRITERS[type(effect)](self._rebuilder, effect, target, kind)
        for function, arguments in redo:
            fn = self._rebuilder.constant(function, getattr(function, "__name__", "set_state"))
            values = [self._rebuilder.expr(argument) for argument in arguments]
            self._writes.append(ast.Expr(call(fn, *values)))

    def prepare_attributes(self, writes: Iterable[Any]) -> None:
        """Prepare the assignments to attributes of tensors, ``writes`` (records ``AttributeWrite``).

        An assignment is needed only if code outside of the frame can reach its tensor. An assigned value may
        make another tensor reachable, so the method repeats until it adds no assignment.
        """
        waiting = list(writes)
        while True:
            seen = [write for write in waiting if self._is_visible(write.tensor)]
            if not seen:
                return
            # Compared by identity, because ``==`` of two records would compare their tensors.
            waiting = [write for write in waiting if not any(write is other for other in seen)]
            for write in seen:
                self._writes.append(self._attribute(write))

    def prepare_tracebacks(self, entries: Iterable[Any]) -> None:
        """Prepare the new traceback entries of exceptions that the trace raised but did not make.

        Such an exception is an object from outside of the frame. ``entries`` are the records of all objects
        from outside (``trace.registry.Entry``).
        """
        for entry in entries:
            if not isinstance(entry.proxy, BaseException) or entry.proxy is entry.original:
                continue
            if entry.proxy.__traceback__ is None:
                continue
            target = self._rebuilder.loads.expr(entry.source)
            before = ast.Attribute(target, "__traceback__", ast.Load())
            traceback = traceback_of(self._rebuilder, entry.proxy, before)
            if traceback is not None:
                # Assigning the attribute could run a ``__setattr__`` of the program.
                setter = BaseException.__dict__["__traceback__"].__set__
                self._writes += _call_statement(self._rebuilder, setter, target, traceback)

    def _is_visible(self, tensor: torch.Tensor) -> bool:
        """Return whether code outside can reach the tensor: it is an input, or the replacement builds it."""
        return self._rebuilder.is_made(tensor) or self._rebuilder.source_of(tensor) is not None

    def _attribute(self, write: Any) -> ast.stmt:
        """Return the statement that assigns or deletes an attribute of a tensor."""
        tensor = self._rebuilder.expr(write.tensor)
        if write.deleted:
            return ast.Delete([ast.Attribute(tensor, write.name, ast.Del())])
        value = self._rebuilder.expr(write.value)
        return ast.Assign([ast.Attribute(tensor, write.name, ast.Store())], value)

    def statements(self) -> Statements:
        """Return the collected writes. ``FrameWriter.finish`` calls this once, after all values are built."""
        return self._writes


def _call_statement(rebuilder: Rebuilder, function: object, *arguments: ast.expr) -> Statements:
    """Return the statement that calls ``function``, which becomes a constant of the replacement."""
    fn = rebuilder.constant(function, getattr(function, "__qualname__", "write"))
    return [ast.Expr(call(fn, *arguments))]


def _tuple(rebuilder: Rebuilder, values: Iterable[Any]) -> ast.expr:
    """Return a tuple display of the rebuilt values."""
    return tuple_of([rebuilder.expr(value) for value in values])


def _dict_class(kind: type) -> Any:
    """Return ``dict`` or ``OrderedDict``: the builtin base of ``kind``.

    Its methods change a dictionary of class ``kind`` without running code of the class.
    """
    return OrderedDict if issubclass(kind, OrderedDict) else dict


def _dict_set(rebuilder: Rebuilder, e: r.DictSet, target: ast.expr, kind: type) -> Statements:
    """Replay ``d[key] = value``. An instance of a subclass is changed by the builtin method, so that no
    override runs.
    """
    key, value = rebuilder.expr(e.key), rebuilder.expr(e.value)
    if kind is dict:
        return [ast.Assign([ast.Subscript(target, key, ast.Store())], value)]
    return _call_statement(rebuilder, _dict_class(kind).__setitem__, target, key, value)


def _dict_delete(rebuilder: Rebuilder, e: r.DictDelete, target: ast.expr, kind: type) -> Statements:
    """Replay ``del d[key]``. An instance of a subclass is changed by the builtin method, so that no override
    runs.
    """
    key = rebuilder.expr(e.key)
    if kind is dict:
        return [ast.Delete([ast.Subscript(target, key, ast.Del())])]
    return _call_statement(rebuilder, _dict_class(kind).__delitem__, target, key)


def _list_replace(rebuilder: Rebuilder, e: r.ListReplace, target: ast.expr, kind: type) -> Statements:
    """Replay the replacement of a slice of a list. Only the slice that changed is written."""
    items = _tuple(rebuilder, e.items)
    if kind is list:
        where = ast.Slice(ast.Constant(e.start), ast.Constant(e.stop))
        return [ast.Assign([ast.Subscript(target, where, ast.Store())], items)]
    where_made = rebuilder.constant(slice(e.start, e.stop), "slice")
    return _call_statement(rebuilder, list.__setitem__, target, where_made, items)


def _deque_replace(rebuilder: Rebuilder, e: r.DequeReplace, target: ast.expr, _: type) -> Statements:
    """Replay the new contents of a deque. A deque has no slices, so all items are replaced."""
    items = _tuple(rebuilder, e.items)
    clear = _call_statement(rebuilder, deque.clear, target)
    return clear + _call_statement(rebuilder, deque.extend, target, items)


def _set_change(rebuilder: Rebuilder, e: r.SetChange, target: ast.expr, _: type) -> Statements:
    """Replay removed and added items of a set. Unchanged items keep their order."""
    out: Statements = []
    if e.removed:
        out += _call_statement(rebuilder, set.difference_update, target, _tuple(rebuilder, e.removed))
    if e.added:
        out += _call_statement(rebuilder, set.update, target, _tuple(rebuilder, e.added))
    return out


def _member(effect: r.SlotSet | r.SlotDelete) -> Any:
    """Return the slot descriptor from the ``__dict__`` of the class. An override in the metaclass does not
    run.
    """
    return type.__dict__["__dict__"].__get__(effect.owner)[effect.name]


def _cell_set(rebuilder: Rebuilder, e: r.CellSet, target: ast.expr, _: type) -> Statements:
    """Replay an assignment to the variable of a cell."""
    content = ast.Attribute(target, "cell_contents", ast.Store())
    return [ast.Assign([content], rebuilder.expr(e.value))]


def _cell_clear(_: Rebuilder, __: r.CellClear, target: ast.expr, ___: type) -> Statements:
    """Replay ``del`` of the variable of a cell."""
    return [ast.Delete([ast.Attribute(target, "cell_contents", ast.Del())])]


def _call(rebuilder: Rebuilder, e: r.Call, target: ast.expr, _: type) -> Statements:
    """Replay a deferred call, such as a log message. The result of the call is dropped."""
    arguments = [rebuilder.expr(value) for value in e.args]
    keywords = [ast.keyword(name, rebuilder.expr(value)) for name, value in e.kwargs.items()]
    return [ast.Expr(ast.Call(target, arguments, keywords))]


_WRITERS: dict[type, Callable[[Rebuilder, Any, ast.expr, type], Statements]] = {
    r.DictSet: _dict_set,
    r.DictDelete: _dict_delete,
    r.Advance: lambda rb, e, to, _: _call_statement(rb, advanced, to, ast.Constant(e.count)),
    r.ListExtend: lambda rb, e, to, _: _call_statement(rb, list.extend, to, _tuple(rb, e.items)),
    r.ListReplace: _list_replace,
    r.DequeReplace: _deque_replace,
    r.SetChange: _set_change,
    r.SlotSet: lambda rb, e, to, _: _call_statement(rb, _member(e).__set__, to, rb.expr(e.value)),
    r.SlotDelete: lambda rb, e, to, _: _call_statement(rb, _member(e).__delete__, to),
    r.CellSet: _cell_set,
    r.CellClear: _cell_clear,
    r.ClassSet: lambda rb, e, to, _: _call_statement(
        rb, type.__setattr__, to, ast.Constant(e.name), rb.expr(e.value)
    ),
    r.ClassDelete: lambda rb, e, to, _: _call_statement(rb, type.__delattr__, to, ast.Constant(e.name)),
    r.Call: _call,
}
"""Maps each class of effect to the function that returns its statements.

The function gets the rebuilder, the effect, the expression of the target, and the class of the target.
"""
