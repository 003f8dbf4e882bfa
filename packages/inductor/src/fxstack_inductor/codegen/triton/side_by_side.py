"""Write a kernel of several parts: a function for each part, and a kernel that chooses a part by the program's number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from fxstack_inductor.codegen.triton.writer import KernelWriter
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.tiling.kernels import TritonKernel
from fxstack_inductor.tiling.tiles import SideBySide, Tiling, tile
from fxstack_interchange.code_writer import CodeWriter


def side_by_side(kernel: Kernel, name: str) -> TritonKernel:
    """Return the launch of the parts of ``kernel``; equal parts are one call of a function, since Triton inlines each call."""
    tiling = SideBySide(kernel, tuple(map(tile, kernel.parts)))
    pointers = {ref.name: f"a{k}" for k, ref in enumerate(kernel.buffers)}
    texts: dict[str, str] = {}
    out = CodeWriter()
    out.line("number = tl.program_id(0)")
    groups, ends, end = _equal(tiling.parts), [], 0
    for _, parts in groups:
        end += len(parts) * _programs(parts[0])
        ends.append(end)
    for place, (text, parts) in enumerate(groups):
        function = texts.setdefault(text, f"{name}_{len(texts)}")
        names = [tuple(pointers[ref.name] for ref in part.kernel.buffers) for part in parts]
        head = f"{'elif' if place else 'if'} number < {ends[place]}:"
        last = place == len(groups) - 1
        with out.block("else:" if last else head) if len(groups) > 1 else nullcontext():
            _call(out, function, ends[place - 1] if place else 0, parts[0], names)
    functions = [text.replace("def PART(", f"def {called}(", 1) for text, called in texts.items()]
    whole = ["@triton.jit", f"def {name}({', '.join(pointers.values())}):", *out.lines]
    return TritonKernel(name, "\n\n".join([*functions, "\n".join(whole)]), tiling)


def _equal(parts: Sequence[Tiling]) -> list[tuple[str, list[Tiling]]]:
    """Return the parts in groups that compute the same of other tensors, each with the text of its function."""
    groups: dict[object, tuple[str, list[Tiling]]] = {}
    for part in parts:
        text = KernelWriter(part, "program").function("PART")
        constants = tuple(part.config.constants.items())
        kinds = tuple((ref.dtype, ref.by_value) for ref in part.kernel.buffers)
        groups.setdefault((text, kinds, constants, _programs(part)), (text, []))[1].append(part)
    return [*groups.values()]


def _programs(part: Tiling) -> int:
    return part.grid.as_int() or 0


def _call(
    out: CodeWriter, function: str, begin: int, part: Tiling, pointers: Sequence[tuple[str, ...]]
) -> None:
    """Write the call of ``function`` for parts that are equal to ``part``, behind the choice of its pointers."""
    program = f"number - {begin}" if begin else "number"
    group, chosen = f"g{begin}", pointers[0]
    if len(pointers) > 1:
        count, chosen = _programs(part), tuple(f"{group}_{k}" for k in range(len(chosen)))
        out.line(f"{group} = {program}")
        _choose(out, chosen, pointers[0])
        for position, names in enumerate(pointers[1:], 1):
            with out.block(f"if {group} >= {count * position}:"):
                _choose(out, chosen, names)
        program = f"{group} % {count}"
    constants = map(str, part.config.constants.values())
    out.line(f"{function}({', '.join([*chosen, program, *constants])})")


def _choose(out: CodeWriter, variables: Iterable[str], names: Iterable[str]) -> None:
    for variable, name in zip(variables, names, strict=True):
        out.line(f"{variable} = {name}")
