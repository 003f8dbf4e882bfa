"""What the machine code of a Triton kernel uses, read from its cubin by a tool that Triton brings: PTX does not know spills."""

import re
import subprocess
import tempfile
from pathlib import Path

import triton

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
