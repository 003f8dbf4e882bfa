"""The native host program with the functions that its operators call: each becomes a C function of the same file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from fxstack_inductor.codegen.c.module import CSource
from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.build import body_steps
from fxstack_inductor.codegen.host.names import identifier
from fxstack_inductor.codegen.host.native import NativePrinter
from fxstack_inductor.codegen.host.native_nested import FUNCTION, Printed
from fxstack_inductor.codegen.host.native_text import c_sizes
from fxstack_inductor.codegen.host.program import HostProgram, Memory
from fxstack_inductor.codegen.host.python_host import PythonPrinter
from fxstack_inductor.ir.nodes import Node
from fxstack_inductor.lower.program import SymbolBinding
from fxstack_inductor.schedule.steps import Body


def native_program(steps: records.HostSteps, source: CSource, *, boxed: bool) -> HostProgram:
    """Return the program; ``source`` has the kernels; ``boxed``: the argument is one emptied list."""
    python = PythonPrinter(steps, source.functions)
    return NativePrinter(steps, python, boxed, source.functions, print_body=print_body).program(
        source.declarations
    )


def print_body(caller: NativePrinter, body: Body) -> Printed:
    """Return a function that an operator in the program or function ``caller`` calls."""
    steps = body_steps(body)
    printer = BodyPrinter(
        steps,
        replace(caller.python, steps=steps),
        boxed=False,
        functions=caller.functions,
        print_body=print_body,
        printed=caller.printed,
    )
    # The tables, and the objects that callbacks and constants need, belong to the whole program.
    printer.state, printer.callbacks, printer.tables = caller.state, caller.callbacks, caller.tables
    printed = printer.printed_function(body)
    caller.calls_back |= printer.calls_back
    return printed


@dataclass
class BodyPrinter(NativePrinter):
    """Writes a function that an operator calls: operands are handles and addresses, and results have memory."""

    error_address: str = "index_error"
    error_value: str = "*index_error"
    given: dict[str, str] = field(default_factory=dict)
    """C expressions of the symbols that the operands determine."""
    destinations: dict[str, int] = field(default_factory=dict)
    """Positions of the tensors that the caller has provided memory for."""

    def printed_function(self, body: Body) -> Printed:
        """Return the function of ``body``."""
        self.locked = False
        program = body.plan.program
        names = [identifier(name) for name in program.parameters]
        self.given = {binding.symbol: f"given[{k}]" for k, binding in enumerate(body.bindings)}
        for position, name in enumerate(names):
            self._place(name, position)
        results = body.results
        self.destinations = {
            identifier(node.name): len(names) + k
            for k, node in enumerate(results.nodes)
            if k not in results.made
        }
        for name in map(identifier, program.constants):
            self.objects[name] = self.bound(name)
            self._from_object(name, self.objects[name])
        for record in self.steps.records:
            self.write(record)
        self.lock(False)
        for k in sorted(results.made):
            self._return_made(results.nodes[k], len(names) + k)
        text = "\n".join(self.lines)
        sizes = {"objects": max(self.counts["o"], 1), "tensors": max(self.counts["t"], 1)}
        handles, addresses = (frozenset(map(int, re.findall(rf"in_{k}\[(\d+)\]", text))) for k in "hd")
        steps = self.steps
        memory = Memory(body.name, tuple(steps.slots.values()), tuple(steps.windows), steps.symbols)
        return Printed(FUNCTION.format(name=body.name, body=text, **sizes), handles, addresses, memory)

    def _return_made(self, node: Node, position: int) -> None:
        """Write the handle of a tensor that an operator has made into the caller's array."""
        sizes = f"{len(node.shape)}, {c_sizes(node.shape)}, {c_sizes(node.layout.stride)}"
        place = f"((void**)in_h)[{position}]"
        self.line(f"{place} = fx_view({self.handles[identifier(node.name)]}, {sizes}, 0);")
        self.check(f"!{place}")

    def _place(self, name: str, position: int) -> None:
        """Let the handle and address of tensor ``name`` be those at ``position`` of the caller's arrays."""
        self.handles[name], self.addresses[name] = f"in_h[{position}]", f"in_d[{position}]"

    def write(self, record: records.Record) -> None:
        """Write the C of one record; the caller has done the work of the first and last records of a program."""
        match record:
            case SymbolBinding() if record.symbol in self.given:
                self.line(f"const int64_t {record.symbol} = {self.given[record.symbol]};")
            case records.Restride() | records.Empty() | records.RaiseErrors() | records.Return():
                return
            case records.Borrow():
                self._name_memory()
            case _:
                super().write(record)

    def allocate(self, record: records.Allocate) -> None:
        """Write the allocation of a tensor, unless the caller has provided its memory."""
        if record.name in self.destinations:
            self._place(record.name, self.destinations[record.name])
        else:
            super().allocate(record)
