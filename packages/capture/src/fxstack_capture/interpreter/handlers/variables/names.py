"""Globals, builtins and the namespaces of class bodies."""

from __future__ import annotations

import operator
from typing import Any

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.exceptions.errors import undefined_name
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.handlers.variables.local_slots import cell_content


def load_global(frame: Frame, name: str) -> None:
    """Push the global variable ``name``. If there is none, push the builtin."""
    frame.stack.append(frame.objects.load_global(frame.globals, frame.builtins, name))


def load_global_null_below(frame: Frame, name: str) -> None:
    """Push a global callable, with the NULL of a call below it (Python 3.11 and 3.12)."""
    frame.stack += (NULL, frame.objects.load_global(frame.globals, frame.builtins, name))


def load_global_null_above(frame: Frame, name: str) -> None:
    """Push a global callable, with the NULL of a call above it (from Python 3.13 on)."""
    frame.stack += (frame.objects.load_global(frame.globals, frame.builtins, name), NULL)


def store_global(frame: Frame, name: str) -> None:
    frame.objects.store_global(frame.globals, name, frame.stack.pop())


def delete_global(frame: Frame, name: str) -> None:
    frame.objects.delete_global(frame.globals, name)


# --- class bodies --------------------------------------------------------------------------------


def _lookup(frame: Frame, namespace: object, name: str) -> Any:
    """Return the value of ``name`` in the namespace of a class body, or NULL. The namespace may be any
    mapping.
    """
    if type(namespace) is dict:
        return namespace.get(name, NULL)
    try:
        return frame.calls.binary(operator.getitem, namespace, name)
    except KeyError as missing:
        frame.interp.dealt_with(missing)
        return NULL


def load_name(frame: Frame, name: str) -> None:
    """Push the value of a name in a class body. If the body lacks the name, push the global or builtin."""
    _load_from_namespace_or_globals(frame, frame.names, name)


def _load_from_namespace_or_globals(frame: Frame, namespace: object, name: str) -> None:
    """Push the value of a name in ``namespace``. If it lacks the name, push the global or builtin."""
    value = _lookup(frame, namespace, name)
    if value is NULL:
        value = frame.objects.load_global(frame.globals, frame.builtins, name)
    frame.stack.append(value)


def store_name(frame: Frame, name: str) -> None:
    """Bind a name in a class body. ``__prepare__`` may have made the namespace an object of the program."""
    value = frame.stack.pop()
    if type(frame.names) is dict:
        frame.names[name] = value
    else:
        frame.calls.call(operator.setitem, (frame.names, name, value), {})


def delete_name(frame: Frame, name: str) -> None:
    """Unbind a name in a class body. Raises NameError if the name is missing."""
    try:
        frame.calls.call(operator.delitem, (frame.names, name), {})
    except KeyError as missing:
        frame.interp.dealt_with(missing)
    else:
        return
    raise undefined_name(name)


def load_locals(frame: Frame, _operand: object) -> None:
    """Push the namespace of a class body."""
    frame.stack.append(frame.names)


def load_classderef(frame: Frame, index: int) -> None:
    """Push the value of a name in a class body, or the content of the cell with this name (Python 3.11)."""
    _load_from_namespace_or_cell(frame, frame.names, index)


def load_from_dict_or_deref(frame: Frame, index: int) -> None:
    """Push the value of a name in the namespace on the stack, or the content of the cell with this name
    (Python 3.12).
    """
    _load_from_namespace_or_cell(frame, frame.stack.pop(), index)


def _load_from_namespace_or_cell(frame: Frame, namespace: object, index: int) -> None:
    """Push the value of the name in slot ``index`` from ``namespace``. If it lacks the name, push the content
    of the cell.
    """
    value = _lookup(frame, namespace, frame.program.names[index])
    frame.stack.append(cell_content(frame, index) if value is NULL else value)


def load_from_dict_or_globals(frame: Frame, name: str) -> None:
    """Push the value of a name in the namespace on the stack, or the global (Python 3.12)."""
    _load_from_namespace_or_globals(frame, frame.stack.pop(), name)


def setup_annotations(frame: Frame, _operand: object) -> None:
    """Bind ``__annotations__`` in a class body, unless it exists already."""
    if _lookup(frame, frame.names, "__annotations__") is NULL:
        frame.calls.call(operator.setitem, (frame.names, "__annotations__", {}), {})


def load_build_class(frame: Frame, _operand: object) -> None:
    """Push ``__build_class__`` for a class statement. The program may have replaced this builtin."""
    value = frame.builtins.get("__build_class__", NULL)
    if value is NULL:
        raise NameError("__build_class__ not found")
    frame.stack.append(value)


def load_assertion_error(frame: Frame, _operand: object) -> None:
    frame.stack.append(AssertionError)
