"""What a native host program comes to: C, and the Python functions that it calls back."""

from __future__ import annotations

from dataclasses import dataclass

from fxstack_inductor.codegen.host.python_host import HostProgram


@dataclass(frozen=True)
class NativeProgram(HostProgram):
    """``source`` defines the functions that the C text ``c`` calls back, in a namespace of ``constants``.

    ``state`` names what the program is bound to; ``calls_back`` says whether anything in it calls ATen through Python.
    """

    c: str
    state: tuple[str, ...]
    calls_back: bool
