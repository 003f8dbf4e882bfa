"""The instruction set of the running Python, and tables of programs decoded with it."""

from __future__ import annotations

import sys
from functools import cache, partial
from types import MappingProxyType

from fxstack_capture.interpreter.program import Behaviour, ProgramTable
from fxstack_capture.versions import v311, v312, v313, v314
from fxstack_capture.versions.decode import InstructionSet, decode

_SUPPORTED = MappingProxyType(
    {(3, 11): v311.OPCODES, (3, 12): v312.OPCODES, (3, 13): v313.OPCODES, (3, 14): v314.OPCODES}
)


def refuse_free_threading(*, disabled: bool) -> None:
    """Raise ImportError if this Python is a build without the GIL (``disabled``). Called when the package is
    imported.

    The frame hook relies on the GIL when it exchanges the code of a frame.
    """
    if disabled:
        raise ImportError(
            "fxstack-capture needs a Python with the GIL, and this is the free-threaded build: it exchanges the code of"
            " frames, which several threads may start at once here. Use the ordinary build of this version"
            " (python3.14 instead of python3.14t)."
        )


@cache
def instruction_set(version: tuple[int, int] = sys.version_info[:2]) -> InstructionSet:
    """Return the instruction set of a version of Python, for example (3, 13).

    Raises:
        RuntimeError: the version is not supported.
    """
    opcodes = _SUPPORTED.get(version)
    if opcodes is None:
        supported = ", ".join(f"{major}.{minor}" for major, minor in _SUPPORTED)
        raise RuntimeError(
            f"Python {version[0]}.{version[1]} is not supported: its bytecode is not known to"
            f" fxstack_capture. Use one of {supported}."
        )
    return InstructionSet(
        opcodes=opcodes,
        throw_leaves_send=version < (3, 12),
        behaviour=Behaviour(
            throw_warns=version >= (3, 12),
            close_returns_value=version >= (3, 13),
            clears_backwards=version >= (3, 14),
            counts_unpacked=version >= (3, 14),
        ),
    )


def program_table() -> ProgramTable:
    """Return a new table of decoded code for the running Python. All traces of one compiler share one table."""
    return ProgramTable(partial(decode, instruction_set=instruction_set()))
