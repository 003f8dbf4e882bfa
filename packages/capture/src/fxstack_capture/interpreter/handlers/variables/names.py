"""Globals, builtins and the namespaces of class bodies."""

from __future__ import annotations

import operator
from typing import Any

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.exceptions.errors import undefined_name
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.handlers.variables.local_slots import cell_content


def load_global(frame: Frame, name: str) -> None:
    """Push the global variable ``name``, or else the builtin."""
    frame.stack.append(frame.objects.load_global(frame.globals, frame.builtins, name))


def load_global_null_below(frame: Frame, name: str) -> None:
    """Push a global callable with the NULL of a call below it (Python 3.11 and 3.12)."""
    frame.stack += (NULL, frame.objects.load_global(frame.globals, frame.builtins, name))


def load_global_null_above(frame: Frame, name: str) -> None:
    """Push a global callable with the NULL of a call above it (from Python 3.13 on)."""
    frame.stack += (frame.objects.load_global(frame.globals, frame.builtins, name), NULL)


def store_global(frame: Frame, name: str) -> None:
    frame.objects.store_global(frame.globals, name, frame.stack.pop())


def delete_global(frame: Frame, name: str) -> None:
    frame.objects.delete_global(frame.globals, name)


# --- class bodies --------------------------------------------------------------------------------


def _lookup(frame: Frame, namespace: object, name: str) -> Any:
    """Return the value of ``name`` in the namespace of a class body (any mapping), or NULL."""
    if type(namespace) is dict:
        return namespace.get(name, NULL)
    try:
        return frame.calls.binary(operator.getitem, namespace, name)
    except KeyError as missing:
        frame.interp.dealt_with(missing)
        return NULL


def load_name(frame: Frame, name: str) -> None:
    """Push a name of a class body, or a global or builtin."""
    _load_from_namespace_or_globals(frame, frame.names, name)


def _load_from_namespace_or_globals(frame: Frame, namespace: object, name: str) -> None:
    """Push a name of ``namespace``, or a global or builtin if the namespace lacks the name."""
    value = _lookup(frame, namespace, name)
    if value is NULL:
        value = frame.objects.load_global(frame.globals, frame.builtins, name)
    frame.stack.append(value)


def store_name(frame: Frame, name: str) -> None:
    """Bind a name of a class body, whose namespace may be an object of the program (``__prepare__``)."""
    value = frame.stack.pop()
    if type(frame.names) is dict:
        frame.names[name] = value
    else:
        frame.calls.call(operator.setitem, (frame.names, name, value), {})


def delete_name(frame: Frame, name: str) -> None:
    """Unbind a name of a class body. Raise NameError if it is missing."""
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
    """Push a name of a class body, or the content of the cell of that name (Python 3.11)."""
    _load_from_namespace_or_cell(frame, frame.names, index)


def load_from_dict_or_deref(frame: Frame, index: int) -> None:
    """Push a name of the namespace on the stack, or the content of the cell of that name (Python 3.12)."""
    _load_from_namespace_or_cell(frame, frame.stack.pop(), index)


def _load_from_namespace_or_cell(frame: Frame, namespace: object, index: int) -> None:
    """Push the name at ``index`` from ``namespace``, or from its cell if the namespace lacks it."""
    value = _lookup(frame, namespace, frame.program.names[index])
    frame.stack.append(cell_content(frame, index) if value is NULL else value)


def load_from_dict_or_globals(frame: Frame, name: str) -> None:
    """Push a name of the namespace on the stack, or a global (Python 3.12)."""
    _load_from_namespace_or_globals(frame, frame.stack.pop(), name)


def setup_annotations(frame: Frame, _operand: object) -> None:
    """Bind ``__annotations__`` of a class body, if it is missing."""
    if _lookup(frame, frame.names, "__annotations__") is NULL:
        frame.calls.call(operator.setitem, (frame.names, "__annotations__", {}), {})


def load_build_class(frame: Frame, _operand: object) -> None:
    """Push ``__build_class__`` for a class statement. The program may have replaced it in its builtins."""
    value = frame.builtins.get("__build_class__", NULL)
    if value is NULL:
        raise NameError("__build_class__ not found")
    frame.stack.append(value)


def load_assertion_error(frame: Frame, _operand: object) -> None:
    frame.stack.append(AssertionError)
