"""The ``class`` statement: ``builtins.__build_class__`` with an interpreted class body."""

from __future__ import annotations

from types import CellType, FunctionType
from typing import Any

from fxstack_capture.interpreter.machine import BytecodeInterpreter


def build_class(interp: BytecodeInterpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``__build_class__(body, name, *bases, metaclass=..., **keywords)``. A class statement calls this
    builtin.
    """
    body, name, *original_bases = _check_arguments(args)
    bases = _resolve_bases(interp, tuple(original_bases))
    keywords = dict(kwargs)
    metaclass = _metaclass(keywords.pop("metaclass", None), bases)
    namespace = _prepare(interp, metaclass, (name, bases), keywords)
    cell = interp.run_body(body, namespace)
    if bases != tuple(original_bases):
        interp.trace.calls.call(
            type(namespace).__setitem__, (namespace, "__orig_bases__", tuple(original_bases)), {}
        )
    cls = interp.trace.calls.call(metaclass, (name, bases, namespace), keywords)
    interp.trace.objects.note_new(cls)
    if isinstance(cls, type) and isinstance(cell, CellType):
        _check_class_cell(cell, name, cls)
    return cls


def _check_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return ``args`` if they are valid arguments. Raises CPython's TypeError if they are missing or wrong."""
    if len(args) < 2:
        raise TypeError("__build_class__: not enough arguments")
    if not isinstance(args[0], FunctionType):
        raise TypeError("__build_class__: func must be a function")
    if not isinstance(args[1], str):
        raise TypeError("__build_class__: name is not a string")
    return args


def _resolve_bases(interp: BytecodeInterpreter, bases: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return ``bases``. A base that is not a class is replaced by the result of its ``__mro_entries__``."""
    resolved: list[Any] = []
    for base in bases:
        if isinstance(base, type):
            resolved.append(base)
            continue
        try:
            method = interp.trace.objects.load_attr(base, "__mro_entries__")
        except AttributeError as missing:
            interp.dealt_with(missing)
            resolved.append(base)
            continue
        entries = interp.trace.calls.call(method, (bases,), {})
        if not isinstance(entries, tuple):
            raise TypeError("__mro_entries__ must return a tuple")
        resolved.extend(entries)
    return tuple(resolved)


def _metaclass(requested: object, bases: tuple[Any, ...]) -> Any:
    """Return the most derived class of ``requested`` and the bases' metaclasses.

    If ``requested`` is not a class, return ``requested``.
    """
    if requested is None:
        requested = type(bases[0]) if bases else type
    if not isinstance(requested, type):
        return requested
    winner = requested
    for base in bases:
        candidate = type(base)
        if issubclass(winner, candidate):
            continue
        if not issubclass(candidate, winner):
            raise TypeError(
                "metaclass conflict: the metaclass of a derived class must be a (non-strict)"
                " subclass of the metaclasses of all its bases"
            )
        winner = candidate
    return winner


def _prepare(
    interp: BytecodeInterpreter,
    metaclass: object,
    header: tuple[str, tuple[Any, ...]],
    keywords: dict[str, Any],
) -> Any:
    """Return the namespace of the class body: the result of ``metaclass.__prepare__``, or a new dict.

    ``header`` contains the name and the bases of the class.
    """
    if metaclass is type:
        return {}
    try:
        prepare = interp.trace.objects.load_attr(metaclass, "__prepare__")
    except AttributeError as missing:
        interp.dealt_with(missing)
        return {}
    namespace = interp.trace.calls.call(prepare, header, dict(keywords))
    if not hasattr(type(namespace), "__getitem__"):
        name = metaclass.__name__ if isinstance(metaclass, type) else "<metaclass>"
        got = type(namespace).__name__
        raise TypeError(f"{name}.__prepare__() must return a mapping, not {got}")
    return namespace


def _check_class_cell(cell: CellType, name: str, cls: type) -> None:
    """Raise CPython's error unless the metaclass has stored ``cls`` in the ``__class__`` cell of the methods."""
    try:
        content = cell.cell_contents
    except ValueError:
        content = None
    if content is None:
        raise RuntimeError(
            f"__class__ not set defining {name!r} as {cls!r}. Was __classcell__ propagated to type.__new__?"
        )
    if content is not cls:
        raise TypeError(f"__class__ set to {content!r} defining {name!r} as {cls!r}")
