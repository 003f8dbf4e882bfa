"""The result of printing a host program."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fxstack_inductor.runtime.arena import Window
from fxstack_inductor.schedule.memory import Slot
from fxstack_inductor.tiling.kernels import TritonKernel


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """A function of the host program: kernel ``kernel`` on device number ``device``."""

    kernel: TritonKernel
    device: int

    @property
    def name(self) -> str:
        """The function's name in the program, for example ``kernel_0`` or, on device 1, ``kernel_0_on1``."""
        return self.kernel.name if not self.device else f"{self.kernel.name}_on{self.device}"


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a function that an operator calls, for a ``runtime.arena.Workspace`` of its own."""

    name: str
    """The function's name; the program calls ``take_NAME`` before the function."""
    slots: tuple[Slot, ...]
    windows: tuple[Window, ...]
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class HostProgram:
    """The text and objects of a host program; ``source`` defines ``call``, in a namespace of ``constants``.

    The namespace also has the loaded kernel functions. If the program is native, ``source`` defines the
    functions that the C text ``c`` calls back.
    """

    source: str
    constants: dict[str, Any]
    arguments: dict[str, int]
    """The kernel functions with their numbers of arguments."""
    slots: tuple[Slot, ...]
    windows: tuple[Window, ...]
    symbols: tuple[str, ...]
    """Slots, windows and symbols describe the program's ``runtime.arena.Workspace``."""
    c: str = ""
    native: bool = False
    """Whether ``c`` is the program, and ``source`` has callbacks only."""
    state: tuple[str, ...] = ()
    """The names of the objects bound to a native program."""
    calls_back: bool = True
    """Whether a step calls back into Python, or a call of the shim makes new tensors: both use torch's dispatcher.

    The loaded program then runs below autograd.
    """
    workspaces: tuple[Memory, ...] = ()
    """The memory of the functions that operators call."""
    launched: dict[str, DeviceFunction] = field(default_factory=dict)
    """The functions that a program for GPUs launches, in the order of their first launches."""
