"""Whether an exception that arrives in interpreted code is the program's, or a failure of the compiler.

A handler of the program (``except KeyError``), and the rules that take an exception for an answer (the end of a loop,
an attribute that is missing), must never see the second kind. The traceback of an exception that no frame of the program
has seen yet tells where it was raised, down to the instruction. The compiler raises the program's exceptions on purpose
(``raise``), or lets what it calls raise them in the modules that make the program's calls. Whatever else is
raised in its own code, or in that of the libraries that only it uses, is a failure of its own: plain
Python will tell what the program does.
"""

from __future__ import annotations

import dis
from pathlib import Path
from typing import TYPE_CHECKING, Final

import sympy
import torch

from fxstack_capture import in_python
from fxstack_capture.breaks import graph_break

if TYPE_CHECKING:
    from types import TracebackType

_OWN: Final = str(Path(__file__).parents[1]) + "/"
_TORCH: Final = Path(torch.__file__).parent
_LIBRARIES: Final = (
    str(Path(sympy.__file__).parent) + "/",
    str(_TORCH / "_subclasses") + "/",
    str(_TORCH / "fx") + "/",
)
_ARITHMETIC: Final = (
    str(_TORCH / "fx" / "experimental" / "sym_node.py"),
    _OWN + "shapes/floats.py",
)
"""What computes with the present values of symbolic numbers: their errors are the program's."""
_RAISING: Final = tuple(
    _OWN + part for part in ("calls/", "interpreter/", "numpy_side/", "torch_side/", "world/")
)
"""Where errors of the program are raised on purpose."""
_CALLING: Final = tuple(
    _OWN + part
    for part in (
        "calls/",
        "interpreter/binding.py",
        "interpreter/handlers/",
        "numpy_side/",
        "torch_side/",
        "world/attributes.py",
        "world/descriptors.py",
        "world/loaders.py",
        "world/stores.py",
    )
)
"""Modules that call what the program calls."""


def demand_program(error: BaseException) -> None:
    """Raise GraphBreak if ``error``, which no frame of the program has seen yet, is not the program's."""
    traceback = error.__traceback__
    if traceback is None:
        return
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    if _is_failure(traceback, error):
        raise graph_break("internal-error", f"{type(error).__name__}: {error}") from error


def _is_failure(innermost: TracebackType, error: BaseException) -> bool:
    code = innermost.tb_frame.f_code
    file = code.co_filename
    if not file.startswith((_OWN, *_LIBRARIES)) or file == in_python.__file__:
        return False
    instruction = dis.opname[code.co_code[innermost.tb_lasti]]
    if instruction.startswith(("RAISE", "RERAISE")):
        return isinstance(error, AssertionError) or not file.startswith(_RAISING)
    called = instruction.startswith(("CALL", "PRECALL"))
    return not (called and file.startswith((*_ARITHMETIC, *_CALLING)))
