"""The result of writing a native host program: C, and the Python functions that the C calls back."""

from __future__ import annotations

from dataclasses import dataclass

from fxstack_inductor.codegen.host.python_host import HostProgram


@dataclass(frozen=True)
class NativeProgram(HostProgram):
    """``source`` defines the functions that the C text ``c`` calls back, in a namespace of ``constants``.

    ``state`` names the objects bound to the program; ``calls_back``: whether the program calls ATen through
    Python.
    """

    c: str
    state: tuple[str, ...]
    calls_back: bool
