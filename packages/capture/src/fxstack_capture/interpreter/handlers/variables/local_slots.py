"""Local variables, cells and free variables."""

from __future__ import annotations

from types import CellType
from typing import Any

from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.exceptions.errors import unbound_cell, unbound_local
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.trace.records import DeferredLocal

# Limits: a closure variable that is deleted and then read after a graph break raises NameError; eager raises
# UnboundLocalError.


def load_fast(frame: Frame, index: int) -> None:
    """Push a local. Raises UnboundLocalError if it is unbound."""
    value = frame.fast[index]
    if value is NULL:
        raise unbound_local(frame, index)
    frame.stack.append(value)


def load_fast_load_fast(frame: Frame, indices: tuple[int, int]) -> None:
    """Push two locals (Python 3.13). Each must be bound."""
    fast = frame.fast
    first, second = indices
    if fast[first] is NULL:
        raise unbound_local(frame, first)
    if fast[second] is NULL:
        raise unbound_local(frame, second)
    frame.stack += (fast[first], fast[second])


def load_fast_and_clear(frame: Frame, index: int) -> None:
    """Save a local, which may be unbound, on the stack. An inlined comprehension uses the same slot."""
    frame.stack.append(frame.fast[index])
    frame.fast[index] = NULL


def store_fast(frame: Frame, index: int) -> None:
    """Pop a value into a local."""
    frame.fast[index] = frame.stack.pop()


def store_fast_load_fast(frame: Frame, indices: tuple[int, int]) -> None:
    """Pop a value into a local, then push a local (from Python 3.13 on)."""
    store_fast(frame, indices[0])
    load_fast(frame, indices[1])


def store_fast_store_fast(frame: Frame, indices: tuple[int, int]) -> None:
    """Pop two values into two locals (from Python 3.13 on)."""
    store_fast(frame, indices[0])
    store_fast(frame, indices[1])


def delete_fast(frame: Frame, index: int) -> None:
    """Unbind a local. Raises UnboundLocalError if it is unbound."""
    if frame.fast[index] is NULL:
        raise unbound_local(frame, index)
    frame.fast[index] = NULL


# --- the root frame: the first load of an argument wraps the argument ----------------------------


def _enter(frame: Frame, index: int) -> None:
    """Wrap a local of the root frame if it is still deferred. Wrapping adds guards. An argument that is never
    read has no guards.
    """
    value = frame.fast[index]
    if type(value) is DeferredLocal:
        frame.fast[index] = frame.objects.enter(value.value, value.source)


def root_load_fast(frame: Frame, index: int) -> None:
    """Push a local of the root frame. The first read wraps it."""
    _enter(frame, index)
    load_fast(frame, index)


def root_load_fast_and_clear(frame: Frame, index: int) -> None:
    """Push a local of the root frame and unbind it, for an inlined comprehension (Python 3.12)."""
    _enter(frame, index)
    load_fast_and_clear(frame, index)


def root_store_fast_load_fast(frame: Frame, indices: tuple[int, int]) -> None:
    """Store a local of the root frame, then push another. The first read of the other wraps it."""
    store_fast(frame, indices[0])
    root_load_fast(frame, indices[1])


def root_make_cell(frame: Frame, index: int) -> None:
    """Wrap an argument of the root frame, then move it into a cell."""
    _enter(frame, index)
    make_cell(frame, index)


# --- cells ---------------------------------------------------------------------------------------


def make_cell(frame: Frame, index: int) -> None:
    """Replace the local at ``index`` with a new cell that holds its value."""
    value = frame.fast[index]
    cell = CellType() if value is NULL else CellType(value)
    frame.objects.note_new(cell)
    frame.fast[index] = cell


def copy_free_vars(frame: Frame, count: int) -> None:
    """Copy the cells of the closure into the last slots."""
    if count:
        frame.fast[-count:] = frame.closure


def load_closure(frame: Frame, index: int) -> None:
    """Push the cell itself, for the closure of an inner function."""
    frame.stack.append(frame.fast[index])


def load_deref(frame: Frame, index: int) -> None:
    """Push the content of a cell."""
    frame.stack.append(cell_content(frame, index))


def cell_content(frame: Frame, index: int) -> Any:
    """Return the content of the cell in slot ``index``.

    Raises NameError or UnboundLocalError if the cell is empty.
    """
    try:
        return frame.objects.load_cell(frame.fast[index])
    except ValueError as empty:
        frame.interp.dealt_with(empty)
    raise unbound_cell(frame, index)


def store_deref(frame: Frame, index: int) -> None:
    """Store a value into a cell."""
    frame.fast[index].cell_contents = frame.stack.pop()


def delete_deref(frame: Frame, index: int) -> None:
    """Delete the content of a cell. Raises the errors of ``cell_content`` if the cell is empty."""
    cell_content(frame, index)
    del frame.fast[index].cell_contents
