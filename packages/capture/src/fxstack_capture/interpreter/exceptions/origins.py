"""Whether an exception that arrives in interpreted code is the program's, or a failure of the compiler.

A handler of the program (``except KeyError``), and the rules that take an exception for an answer (the end of a loop,
an attribute that is missing), must never see the second kind. The traceback of an exception that no frame of the program
has seen yet tells where it was raised, down to the instruction. It is the program's where the compiler raised it on purpose
(``raise``), or where it left one of the few functions that call what the program calls (``callers``). Whatever else is
raised below the compiler is a failure of its own: plain Python will tell what the program does. Where an exception
ends the whole frame, plain Python is asked in any case (``driver.reports.mistakes``).
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
from fxstack_capture.calls.polyfills import functions as polyfill

_OWN: Final = str(Path(__file__).parents[2]) + "/"
_TORCH: Final = Path(torch.__file__).parent
_LIBRARIES: Final = (
    str(Path(sympy.__file__).parent) + "/",
    str(_TORCH / "_subclasses") + "/",
    str(_TORCH / "fx") + "/",
)
"""Code that only the compiler runs."""
_ARITHMETIC: Final = str(_TORCH / "fx" / "experimental" / "sym_node.py")
"""What computes with the present values of symbolic numbers: its errors are the program's."""
_RAISING: Final = tuple(
    _OWN + part for part in ("calls/", "interpreter/", "numpy_side/", "torch_side/", "objects/")
)
"""Where errors of the program are raised on purpose."""


def demand_program(error: BaseException) -> None:
    """Raise GraphBreak if ``error``, which no frame of the program has seen yet, is not the program's."""
    if _is_failure(error):
        raise graph_break("internal-error", f"{type(error).__name__}: {error}") from error


def _is_failure(error: BaseException) -> bool:
    innermost = raised = error.__traceback__
    while raised is not None:
        if _is_ours(raised):
            innermost = raised
        last, raised = raised, raised.tb_next
    if innermost is None or not innermost.tb_frame.f_code.co_filename.startswith(_OWN):
        return False  # code that somebody else says calls the program's
    if last is innermost and _instruction(innermost).startswith(("RAISE", "RERAISE")):
        file = innermost.tb_frame.f_code.co_filename
        return isinstance(error, AssertionError) or not file.startswith(_RAISING)
    if innermost.tb_frame.f_code not in CALLERS or not _calls(innermost):
        return True
    file = last.tb_frame.f_code.co_filename
    return file.startswith(_LIBRARIES) and not (file == _ARITHMETIC and _calls(last))


def _is_ours(entry: TracebackType) -> bool:
    code = entry.tb_frame.f_code
    if code.co_filename == polyfill.__file__:
        return False
    return code.co_filename.startswith(_OWN) or code in CALLERS


def _calls(entry: TracebackType) -> bool:
    return _instruction(entry).startswith(("CALL", "PRECALL"))


def _instruction(entry: TracebackType) -> str:
    return dis.opname[entry.tb_frame.f_code.co_code[entry.tb_lasti]]
