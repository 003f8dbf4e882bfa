"""The functions that native host programs (``codegen/host.h``) need, and whether this process has them.

The functions are CPython's stable ABI, torch's C shim, and one C++ function of torch's Python bindings by its
mangled name (which fixes its signature). torch does not promise that a Python tensor holds an ``at::Tensor``
at a fixed offset. So the offset is found by comparison with several tensors; if anything is unexpected, host
programs are Python.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from fxstack_inductor import torch_compat

HEADER = (files("fxstack_inductor.codegen") / "host.h").read_text()
FUNCTIONS = tuple(re.findall(r"^  X\([^()]*?, (\w+),", HEADER, re.MULTILINE))
"""The functions of the table, in order."""
MANGLED = {"wrap_tensor": "_Z16THPVariable_WrapRKN2at10TensorBaseE"}
PROFILING = ("aoti_record_function_start", "aoti_record_function_end")
"""Functions of the shim that make an entry in a profile of torch."""
PROFILER = (vars(torch.autograd.profiler), "_is_profiler_enabled", True)
"""Where torch's profiler sets its flag, the name of the flag, and its value while a profiler is on."""
STREAM = "aoti_torch_get_current_cuda_stream"
"""The function without which host programs on CUDA are Python."""
OPTIONAL = frozenset(["torch_exception_get_what_without_backtrace", STREAM, *PROFILING])
"""Functions that a torch may lack: a null pointer in the table, as for an operator of the shim."""
ENTRY = "fxstack_bind"
"""The function of a library that binds its host program to objects."""
_WORD = struct.calcsize("P")
_OFFSETS = range(2 * _WORD, 8 * _WORD, _WORD)


@dataclass(frozen=True, slots=True)
class Refused:
    """The reason why host programs are not native here."""

    reason: str


@dataclass(frozen=True, slots=True)
class Table:
    """The header's ``fx_api``. ``offset`` is the position of the ``at::Tensor`` in a Python tensor."""

    memory: Any
    """The words of the table, a ctypes array."""
    offset: int


@lru_cache(maxsize=1)
def native_table() -> Table | Refused:
    """Return the table of this process, made once, or the reason why host programs are Python."""
    offset = tensor_offset()
    if offset is None:
        return Refused("Python tensors do not have the expected layout")
    addresses = {name: _address(name) for name in FUNCTIONS}
    missing = sorted(name for name in FUNCTIONS if not addresses[name] and not _optional(name))
    if missing:
        return Refused(f"this Python or torch has no {', '.join(missing)}")
    types = (torch.Tensor, torch.nn.Parameter, torch_compat.TensorBase, float)
    objects = (*types, TypeError, RuntimeError, *PROFILER)
    words = [*(addresses[name] for name in FUNCTIONS), offset, *map(id, objects)]
    return Table((ctypes.c_int64 * len(words))(*words), offset)


def has_function(name: str) -> bool:
    """Whether the table has ``name``, and this torch has the function."""
    return name in FUNCTIONS and bool(_address(name))


def tensor_offset() -> int | None:
    """Return the offset in Python tensors of the ``TensorImpl`` pointer, the content of an ``at::Tensor``."""
    base = torch.zeros(3)
    samples = [base, base[1:], torch.nn.Parameter(base), torch.zeros(2, dtype=torch.int64)]
    if any(_word(id(t) + _WORD) != id(type(t)) for t in samples):
        return None
    fitting = [k for k in _OFFSETS if all(_word(id(t) + k) == t._cdata for t in samples)]
    return fitting[0] if len(fitting) == 1 else None


def bind(library: ctypes.CDLL, state: tuple[Any, ...]) -> Any:
    """Return a loaded library's host program as a built-in function that holds ``state``.

    Only processes with a table (``native_table``) call this.
    """
    table = native_table()
    assert isinstance(table, Table)
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object)(
        ctypes.cast(library[ENTRY], ctypes.c_void_p).value or 0
    )
    return make(ctypes.addressof(table.memory), state)


def pack(addresses: Sequence[int], tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Return what a native program takes from a block: bytes of addresses, bytes of handles, the tensors.

    It is ``Workspace.pack`` of native programs, as ``arena.flat`` is of Python programs.
    """
    table = native_table()
    assert isinstance(table, Table)
    handles = [id(tensor) + table.offset for tensor in tensors]
    return (_words(addresses), _words(handles), tuple(tensors))


def _words(values: Sequence[int]) -> bytes:
    """Return the bytes of 64-bit integers."""
    return struct.pack(f"{len(values)}q", *values)


def _word(address: int) -> int | None:
    """Return the word in memory at ``address``."""
    return ctypes.c_void_p.from_address(address).value


def _optional(name: str) -> bool:
    """Whether programs can do without the function ``name``."""
    return name in OPTIONAL or name.startswith(("aoti_torch_cpu_", "aoti_torch_cuda_"))


@lru_cache(maxsize=len(FUNCTIONS))
def _address(name: str) -> int:
    """Return the address of the function ``name``; 0 if this process lacks it."""
    symbol = MANGLED.get(name, name)
    try:
        return ctypes.cast(torch_library(name)[symbol], ctypes.c_void_p).value or 0
    except (AttributeError, OSError):
        return 0


def torch_library(name: str) -> ctypes.CDLL:
    """Return the loaded library that has function ``name`` of the table."""
    if name.startswith("Py"):
        return ctypes.pythonapi
    file = "torch_python" if name in MANGLED else "torch_cuda" if "_cuda_" in name else "torch_cpu"
    libraries = sorted((Path(torch.__file__).parent / "lib").glob(f"*{file}.*"))
    return ctypes.CDLL(str(libraries[0])) if libraries else ctypes.CDLL(None)
