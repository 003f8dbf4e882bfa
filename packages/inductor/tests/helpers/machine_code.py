"""What the machine code of a Triton kernel uses, read from its cubin by a tool that Triton brings: PTX does not know spills."""

import re
import subprocess
import tempfile
from pathlib import Path

import triton

from fxstack_inductor.runtime.cubins import request_entry
from fxstack_inductor.runtime.triton_worker import compile_kernel

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


def registers_and_spilled(compiled):
    """Registers of a thread, and bytes of memory that it uses for want of more."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [str(CUOBJDUMP), "-res-usage", file.name]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack, _, local = map(int, USAGE.search(printed).groups())
    return registers, stack + local


def compile_ahead(source, module, capability):
    """Compile every kernel for ``sm_<capability>`` without a GPU; return Triton's compiled kernels by name."""
    kernels = {k.name: k for k in source.functions.values()}
    return {
        name: compile_kernel(getattr(module, name), request_entry(k), capability)
        for name, k in kernels.items()
    }
