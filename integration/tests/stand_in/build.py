"""Builds stand-ins for CUDA's driver, its runtime, cuBLAS and cuDNN, with which torch's CUDA build runs where there is no GPU.

Torch takes them for two H100s whose memory is the host's: allocations, copies, streams, events, recordings, autograd's threads
and Triton's launches are real calls, copies copy, and kernels do nothing but leave a record. Programs over them need
``FXSTACK_DROPOUT=generated``: the numbers that kernels draw cannot be compared.
"""

import ctypes
import subprocess
from pathlib import Path

import torch

HERE = Path(__file__).parent
SITE = Path(torch.__file__).parents[1]
MOST_PARAMETERS = 256
"""Arguments of a launch that a record holds, the sizes of the grid among them; as in ``driver.c``."""
REST = ("cublasSet", "cublasDestroy", "cublasLt", "cudnnSet", "cudnnDestroy")
"""What else succeeds without doing anything."""


def build(folder):
    """The library to preload; raises RuntimeError for a torch without CUDA."""
    include = SITE / "nvidia" / "cu13" / "include"
    if torch.version.cuda is None or not include.exists():
        raise RuntimeError("this needs torch's build for CUDA 13, with NVIDIA's packages beside it")
    shared = ["cc", "-w", "-shared", "-fPIC", "-O1"]
    driver, runtime = folder / "libcuda.so.1", folder / "libcudart.so.13"
    _run(*shared, "-o", driver, HERE / "driver.c", "-Wl,-soname,libcuda.so.1", "-ldl", "-lpthread")
    (folder / "libcuda.so").symlink_to(driver)
    objects = [folder / f"{name}.o" for name in ("runtime", "libraries")]
    for made in objects:
        source = HERE / f"{made.stem}.c"
        _run(*shared, f"-I{HERE / 'headers'}", f"-I{include}", "-c", "-o", made, source)
    ours = {line.split()[-1] for line in _run("nm", *objects).splitlines() if " T " in line}
    rest = folder / "rest.c"
    rest.write_text("".join(f"int {n}() {{ return 0; }}\n" for n in sorted(_wanted() - ours)))
    names = ["-Wl,-soname,libcudart.so.13", f"-L{folder}", "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN"]
    _run(*shared, "-o", runtime, *objects, rest, *names, "-ldl", "-lpthread")
    return runtime


def _wanted():
    """The functions that torch and NVIDIA's libraries take from CUDA's runtime, and those of ``REST``."""
    libraries = [*SITE.glob("torch/lib/*.so*"), *SITE.glob("nvidia/*/lib/*.so*")]
    found = set()
    for library in libraries:
        for line in _run("nm", "-D", "--undefined-only", library).splitlines():
            name, _, version = line.split()[-1].partition("@")
            if version.startswith("libcudart") or name.startswith(REST):
                found.add(name)
    return found


def _run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode and command[0] != "nm":
        raise RuntimeError(done.stderr)
    return done.stdout


class Call(ctypes.Structure):
    """One record of ``driver.c``."""

    _fields_ = [
        *((n, ctypes.c_int64) for n in ("function", "grid", "threads", "shared")),
        *((n, ctypes.c_int64) for n in ("stream", "context", "thread", "time", "image", "count")),
        ("parameters", ctypes.c_int64 * MOST_PARAMETERS),
        ("name", ctypes.c_char * 360),
    ]


class Records:
    """What the devices were asked to do since ``clear``."""

    def __init__(self):
        library = ctypes.CDLL("libcuda.so.1")
        self._calls = (Call * (1 << 16)).in_dll(library, "fake_calls")
        self._count = ctypes.c_int.in_dll(library, "fake_count")

    def clear(self):
        self._count.value = 0

    def calls(self):
        return [(c.name.decode(), c.stream, c.context - 0x1000) for c in self._calls[: self._count.value]]

    def details(self):
        """The records as dicts; ``parameters`` begin with the three sizes of the grid."""
        found = [{n: getattr(c, n) for n, *_ in Call._fields_} for c in self._calls[: self._count.value]]
        return [
            {**c, "name": c["name"].decode(), "parameters": [*c["parameters"]][: c["count"]]} for c in found
        ]
