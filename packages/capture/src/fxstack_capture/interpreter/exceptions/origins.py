"""Decide whether an exception in interpreted code is the program's exception or a failure of the compiler.

Handlers of the program (``except KeyError``) must never see a failure of the compiler. The same holds for
rules that interpret an exception, such as the end of a loop or a missing attribute.

The question arises when no frame of the program has seen the exception yet. The traceback then names the
instruction that raised it. The exception is the program's in two cases: the compiler raised it on purpose
(``raise``), or it left one of the few functions that call code of the program (``callers``). Any other
exception from the compiler is a failure, and plain Python runs the frame. An exception that ends the whole
frame needs no decision, because plain Python runs in any case (``driver.reports.mistakes``).
"""

from __future__ import annotations

import dis
from pathlib import Path
from types import TracebackType
from typing import Final

import sympy
import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import CALLERS
from fxstack_capture.interpreter import polyfills as polyfill
from fxstack_interchange.bytecode import Kind, kind_of

_OWN: Final = str(Path(__file__).parents[2]) + "/"
_TORCH: Final = Path(torch.__file__).parent
_LIBRARIES: Final = (
    str(Path(sympy.__file__).parent) + "/",
    str(_TORCH / "_subclasses") + "/",
    str(_TORCH / "fx") + "/",
)
"""Folders of code that only the compiler calls."""
_ARITHMETIC: Final = str(_TORCH / "fx" / "experimental" / "sym_node.py")
"""The file that computes the current values of symbolic numbers. Its errors are the program's errors."""
_RAISING: Final = tuple(
    _OWN + part for part in ("calls/", "interpreter/", "numpy_side/", "torch_side/", "objects/", "trace/")
)
"""Folders whose ``raise`` statements raise the program's errors on purpose."""


def demand_program(error: BaseException) -> None:
    """Raise GraphBreak if a failure of the compiler raised ``error``.

    The interpreter calls this for an error that no frame of the program has seen yet.
    """
    if _is_failure(error):
        raise graph_break("internal-error", f"{type(error).__name__}: {error}") from error


def _is_failure(error: BaseException) -> bool:
    """Return whether a defect of this package raised ``error``.

    The program's own exceptions leave a call in one of ``CALLERS``, or a ``raise`` in one of the folders
    ``_RAISING``.
    """
    innermost = raised = error.__traceback__
    while raised is not None:
        if _is_ours(raised):
            innermost = raised
        last, raised = raised, raised.tb_next
    if innermost is None or not innermost.tb_frame.f_code.co_filename.startswith(_OWN):
        return False  # a registered caller of the program outside of this package
    if last is innermost and _kind(innermost) & (Kind.RAISES | Kind.RERAISES):
        file = innermost.tb_frame.f_code.co_filename
        return isinstance(error, AssertionError) or not file.startswith(_RAISING)
    if innermost.tb_frame.f_code not in CALLERS or not _calls(innermost):
        return True
    file = last.tb_frame.f_code.co_filename
    return file.startswith(_LIBRARIES) and not (file == _ARITHMETIC and _calls(last))


def _is_ours(entry: TracebackType) -> bool:
    """Return whether a traceback entry belongs to this package or to a registered caller of the program.

    Polyfills do not count, because they represent code of the program.
    """
    code = entry.tb_frame.f_code
    if code.co_filename == polyfill.__file__:
        return False
    return code.co_filename.startswith(_OWN) or code in CALLERS


def _calls(entry: TracebackType) -> bool:
    """Return whether a traceback entry is at a call instruction."""
    return Kind.CALLS in _kind(entry)


def _kind(entry: TracebackType) -> Kind:
    """Return the properties of the instruction of a traceback entry."""
    return kind_of(dis.opname[entry.tb_frame.f_code.co_code[entry.tb_lasti]])
