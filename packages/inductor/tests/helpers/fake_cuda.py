"""Builds the recording driver of ``fake_cuda.c`` and reads what it has recorded."""

import ctypes
import subprocess
from pathlib import Path

from fxstack_inductor.runtime.cuda_driver import Driver

SOURCE = Path(__file__).with_name("fake_cuda.c")


class Call(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("function", "grid", "threads", "shared", "stream")),
        ("context", ctypes.c_int64),
        ("params", ctypes.c_int64 * 16),
    ]


class FakeCuda:
    """``driver`` is what a graph is given; ``status`` is what the next launches return."""

    def __init__(self, folder, params):
        path = folder / "libfakecuda.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-w", str(SOURCE), "-o", str(path)], check=True)
        self.library = ctypes.CDLL(str(path))
        self.driver = Driver(str(path))
        ctypes.c_int.in_dll(self.library, "fake_limit").value = params

    def number(self, name):
        return ctypes.c_int.in_dll(self.library, name)

    @property
    def calls(self):
        return list((Call * 64).in_dll(self.library, "fake_calls"))[: self.number("fake_count").value]
