"""Write a kernel of several parts: a function for each part, and a kernel that chooses a part by the program's number."""

from __future__ import annotations

from fxstack_inductor.codegen.triton.writer import KernelWriter
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.tiling.kernels import TritonKernel
from fxstack_inductor.tiling.tiles import SideBySide, Tiling, tile
from fxstack_interchange.code_writer import CodeWriter


def side_by_side(kernel: Kernel, name: str) -> TritonKernel:
    """Return the launch of the parts of ``kernel``; equal parts call one function."""
    tiling = SideBySide(kernel, tuple(map(tile, kernel.parts)))
    functions: dict[str, str] = {}
    out = CodeWriter()
    pointers = {ref.name: f"a{k}" for k, ref in enumerate(kernel.buffers)}
    begin = 0
    out.line("number = tl.program_id(0)")
    for position, part in enumerate(tiling.parts):
        text = KernelWriter(part, "program").function("PART")
        function = functions.setdefault(text, f"{name}_{len(functions)}")
        end = begin + (part.grid.as_int() or 0)
        last = position == len(tiling.parts) - 1
        head = "else:" if last else f"{'elif' if position else 'if'} number < {end}:"
        with out.block(head):
            out.line(f"{function}({_arguments(part, pointers, begin)})")
        begin = end
    texts = [text.replace("def PART(", f"def {called}(", 1) for text, called in functions.items()]
    whole = ["@triton.jit", f"def {name}({', '.join(pointers.values())}):", *out.lines]
    return TritonKernel(name, "\n\n".join([*texts, "\n".join(whole)]), tiling)


def _arguments(part: Tiling, pointers: dict[str, str], begin: int) -> str:
    """Return the arguments of the function of ``part``, whose programs begin with the number ``begin``."""
    program = f"number - {begin}" if begin else "number"
    constants = part.config.constants.values()
    return ", ".join([*(pointers[ref.name] for ref in part.kernel.buffers), program, *map(str, constants)])
