"""The host program as readable Python with torch's operator names, and its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.names import HELPERS, identifier
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.codegen.host.python_host import PythonPrinter
from fxstack_inductor.repro.values import foreign, text_of, whole
from fxstack_inductor.schedule.memory import place
from fxstack_inductor.schedule.steps import Plan


@dataclass
class ScriptPrinter(PythonPrinter):
    """Writes operators and dtypes by name where they are used."""

    foreign: set[str] = field(default_factory=set)
    """Names of the used operators that torch does not register; the script names them for its reader."""

    def callee(self, target: object) -> str:
        """Return the operator's name; record the operators that the reader must register."""
        name = foreign(target)
        if name is not None:
            self.foreign.add(name)
        return super().callee(target)

    def as_declared(self, text: str, call: records.Call) -> str:  # noqa: ARG002 - a script checks no fake function
        return text

    def constant(self, value: object) -> str:
        """Return the text of a constant argument: a name below ``torch``, or a name of the program's namespace."""
        if isinstance(value, torch.Tensor):
            return super().constant(value)
        text = text_of(value)
        # Graphs have no input named torch, but may have an input named operator.
        return text if text.startswith("torch.") else super().constant(value)


def own_constants(program: HostProgram, plan: Plan) -> dict[str, Any]:
    """Return the constants that are neither helpers nor attributes of the graph, by their names in the program."""
    attributes = {identifier(name) for name in plan.program.constants}
    return {k: v for k, v in program.constants.items() if k not in HELPERS and k not in attributes}


def memory_lines(program: HostProgram, plan: Plan, inputs: Sequence[Any]) -> list[str]:
    """Return the lines of the functions ``take`` and ``give``, which replace the arena, for the sizes of these inputs."""
    if not program.slots:
        return []
    sizes = symbol_values(plan, inputs)
    values = {name: sizes[name] for name in program.symbols}
    offsets, total = place(program.slots, values)
    lines = [
        f"MEMORY = torch.empty({max(total, 1) + 15 & ~15}, dtype=torch.uint8)",
        "",
        "",
        "def take(*sizes):",
        '    """The block, addresses of intermediate tensors in it, and tensors over it."""',
        f"    assert sizes == {tuple(values.values())}, sizes",
        "    start = MEMORY.data_ptr()",
        "    return (",
        "        MEMORY,",
        *(f"        start + {offset}," for offset in offsets),
    ]
    for window in program.windows:
        dtype = program.slots[window.slot].layout.dtype
        start = offsets[window.slot] // dtype.itemsize + window.offset.evaluate(values)
        shape = tuple(s.evaluate(values) for s in window.shape)
        stride = tuple(s.evaluate(values) for s in window.stride)
        lines.append(f"        MEMORY.view({dtype}).as_strided({shape}, {stride}, {start}),")
    return [*lines, "    )", "", "", "def give(block):", '    """The block is kept."""']


def symbol_values(plan: Plan, inputs: Sequence[Any]) -> Mapping[str, int]:
    """Return the values of the symbolic sizes that the inputs determine, by name."""
    arguments = dict(zip(plan.program.parameters, inputs, strict=True)) | plan.program.constants
    symbols = {}
    for binding in plan.program.bindings:
        if binding.source not in arguments:
            continue
        value = arguments[binding.source]
        if binding.dim is None:
            symbols[binding.symbol] = whole((value,))[0]
        else:
            sizes = value.stride() if binding.stride else value.shape
            symbols[binding.symbol] = whole(sizes)[binding.dim] - binding.rest
    return symbols
