"""Loops and branches of a native host program over functions of the program, in C.

A function takes the handles and addresses of its operands and of the tensors that it writes. An iteration of a loop
sets these and calls the function: nothing is allocated, and Python is not called. The results of one iteration are
operands of the next: each carry has two tensors in turn. The slices of a stacked tensor are addresses in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.names import identifier
from fxstack_inductor.codegen.host.native_text import TablePrinter, c_sizes, write_made, write_operands
from fxstack_inductor.codegen.host.program import Memory
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Node
from fxstack_inductor.lower.nested.calls import one_step
from fxstack_inductor.schedule.build import extent
from fxstack_inductor.schedule.steps import Body, bodies_of

SIGNAL_PERIOD = 4096
"""The number of iterations between two checks for signals."""
FUNCTION = """static FX_PLAINLY int {name}(fx_object* self, void** held, int32_t* index_error,
    const uint32_t threads, const int profiled, int64_t const* const p, void* const* const w,
    void* const* const in_h, void* const* const in_d, const int64_t* const given) {{
  fx_object* o[{objects}] = {{0}};
  void* t[{tensors}] = {{0}};
  fx_places places = {{self, o, t, 0, w}};
  void* thread = *held;
  int32_t failed = 0, code = 0;
{body}
  goto done;
fail:
  code = -1;
done:
  for (int k = 0; k < {tensors}; k++) fx_drop(&t[k]);
  for (int k = 0; k < {objects}; k++) if (o[k]) fx_release(&thread, &o[k]);
  *held = thread;
  return code | (failed & 0);
}}
"""
"""A function that an operator calls. It begins and ends without the interpreter's lock."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A function in C. ``handles`` and ``addresses``: the operands and results of which it reads these."""

    text: str
    handles: frozenset[int]
    addresses: frozenset[int]
    memory: Memory
    """Its tensors in a block of memory."""


class Printer(TablePrinter, Protocol):
    """The printer of the program or function around a loop (``native.NativePrinter``)."""

    error_address: str
    error_value: str

    def line(self, text: str) -> None: ...

    def check(self, failed: str) -> None: ...

    def lock(self, wanted: bool) -> None: ...

    def new(self, kind: str) -> str: ...

    def variable(self, kind: str, name: str) -> str: ...

    def call_python(self, text: str, values: Sequence[str], place: str = "", wanted: int = 0) -> None: ...

    def call(self, name: str, values: Sequence[str], place: str = "", wanted: int = 0) -> None: ...

    def tensor(self, value: records.Variable | records.Strided) -> str: ...

    def declare(self, name: str, value: str) -> None: ...

    def keep_alive(self, name: str, place: str) -> None: ...

    def number(self, value: Expr) -> str: ...

    def function_of(self, body: Body) -> Printed: ...


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of the program around a loop: C expressions of its handle and address, and the node."""

    handle: str
    address: str
    node: Node


@dataclass(frozen=True, slots=True)
class _Function:
    """A function at one place of call; ``handles`` and ``addresses`` are the C arrays that it gets."""

    body: Body
    printed: Printed
    handles: str
    addresses: str
    block: str
    """The place of its borrowed block; empty without one."""
    call: str
    """The C expression of a call; nonzero after a failure."""


def write_nested(printer: Printer, record: records.Nested) -> None:
    """Write a loop or branch."""
    _Writer(printer, record).run()


class _Writer:
    """Writes one loop or branch."""

    def __init__(self, printer: Printer, record: records.Nested) -> None:
        self.printer, self.record = printer, record
        form = record.step.form
        self.carried, self.sliced = len(form.carried), len(form.sliced)
        self.count = len(form.operands)

    def run(self) -> None:
        """Write the borrowing of memory, the loop, and the return of the memory."""
        printer, step = self.printer, self.record.step
        printer.lock(True)
        if step.form.kind == "call":
            self._call()
            return
        pairs = zip(bodies_of(step), self.record.symbols, strict=True)
        functions = [self._function(body, symbols) for body, symbols in pairs]
        operands = [self._tensor(v, n) for v, n in zip(self.record.operands, step.form.operands, strict=True)]
        results = [self._tensor(v, n) for v, n in zip(self.record.results, step.written, strict=True)]
        chosen = self._tensor(self.record.predicate, step.form.predicate)
        printer.lock(False)
        for function in functions:
            for position in range(self.carried + self.sliced, self.count):
                self._set(function, position, operands[position])
        match step.form.kind:
            case "while":
                self._while(functions, operands, results)
            case "scan":
                self._scan(functions[0], operands, results)
            case _:
                assert chosen is not None
                self._branch(functions, results, chosen)
        self._give_back(functions)

    def _call(self) -> None:
        """Write a call of one function. A loop reads the addresses: the C compiler takes time for each statement."""
        printer, step = self.printer, self.record.step
        (body,), (symbols,) = bodies_of(step), self.record.symbols
        given = dict(enumerate(zip(self.record.operands, step.form.operands, strict=True)))
        provided = zip(self.record.results, step.written, strict=True)
        for position in range(len(body.results.nodes)):
            if position not in body.results.made:
                given[self.count + position] = next(provided)
        handles = {k: printer.tensor(value) for k, (value, node) in given.items() if isinstance(node, Node)}
        function = self._function(body, symbols, handles)
        read = sorted(function.printed.addresses & handles.keys())
        if read:
            rows = printer.tables.rows([(position,) for position in read])
            printer.check(f"fx_addresses({function.handles}, {rows}, {function.addresses})")
        printer.lock(False)
        printer.check(function.call)
        self._take_made(function)
        self._give_back([function])

    def _give_back(self, functions: Sequence[_Function]) -> None:
        """Write the return of borrowed memory."""
        printer = self.printer
        blocks = [function.block for function in functions if function.block]
        if blocks:
            printer.lock(True)
        for block in blocks:
            printer.call("give", [block])
            first = int(block[2:-1])
            printer.line(f"for (int k = {first}; k < {first + 4}; k++) fx_set(&o[k], 0);")

    # --- the beginning ------------------------------------------------------------------------------------

    def _function(
        self, body: Body, symbols: Sequence[Expr], tensors: Mapping[int, str] = MappingProxyType({})
    ) -> _Function:
        """Write the arrays of a function, with the handles ``tensors`` by position, and the borrowing of its memory."""
        printer, printed = self.printer, self.printer.function_of(body)
        total = self.count + len(body.results.nodes)
        handles, addresses, given = (printer.variable(kind, body.name) for kind in ("H", "D", "N"))
        printer.line(f"void *{handles}[{total + 1}] = {{0}}, *{addresses}[{total + 1}] = {{0}};")
        if tensors:
            write_operands(printer, handles, [tensors.get(k, "") for k in range(total)])
        if symbols:
            printer.line(f"const int64_t {given}[] = {{{', '.join(map(c_index, symbols))}}};")
        block, memory = "", "0, 0"
        if printed.memory.slots:
            values = dict(zip((binding.symbol for binding in body.bindings), symbols, strict=True))
            sizes = [printer.number(values[symbol]) for symbol in printed.memory.symbols]
            block, places, windows, _ = (printer.new("o") for _ in range(4))
            printer.call(f"take_{body.name}", sizes, block, 4)
            memory = f"(int64_t*)fx.PyBytes_AsString({places}), (void**)fx.PyBytes_AsString({windows})"
        start = f"{body.name}(self, &thread, {printer.error_address}, threads, profiled, {memory}"
        return _Function(
            body,
            printed,
            handles,
            addresses,
            block,
            f"{start}, {handles}, {addresses}, {given if symbols else 0})",
        )

    def _tensor(self, value: Any, node: Any) -> _Tensor | None:
        """Return the handle and the address of a tensor; None for an integer."""
        if not isinstance(node, Node):
            return None
        address, handle = self.printer.variable("D", node.name), self.printer.tensor(value)
        self.printer.line(f"void* {address} = 0;")
        self.printer.check(f"fx_data({handle}, &{address})")
        return _Tensor(handle, address, node)

    def _set(self, function: _Function, position: int, tensor: _Tensor | None) -> None:
        """Write the handle and address of a tensor into the arrays of a function, if it reads these."""
        if tensor is not None:
            self._put(function, position, tensor.handle, tensor.address)

    def _put(self, function: _Function, position: int, handle: str, address: str) -> None:
        """Write C expressions into the arrays of a function, if it reads these."""
        if position in function.printed.handles:
            self.printer.line(f"{function.handles}[{position}] = {handle};")
        if position in function.printed.addresses:
            self.printer.line(f"{function.addresses}[{position}] = {address};")

    def _results(self, function: _Function, results: Sequence[_Tensor | None]) -> None:
        """Write the results into the arrays of a function that is called once."""
        remaining = iter(results)
        for position in range(len(function.body.results.nodes)):
            if position not in function.body.results.made:
                self._set(function, self.count + position, next(remaining))

    def _take_made(self, function: _Function) -> None:
        """Keep the tensors that operators of ATen have made in a function."""
        made = sorted(function.body.results.made)
        outputs = self.record.step.outputs
        names = {self.count + k: identifier(outputs[k].name) for k in made}
        write_made(self.printer, function.handles, names)

    # --- kinds --------------------------------------------------------------------------------------------

    def _branch(
        self, functions: Sequence[_Function], results: Sequence[_Tensor | None], chosen: _Tensor
    ) -> None:
        """Write the call of one of two functions."""
        true, false = functions
        for function in functions:
            self._results(function, results)
        self.printer.check(f"*(const char*){chosen.address} ? {true.call} : {false.call}")

    def _carries(self, operands: Sequence[_Tensor | None], results: Sequence[_Tensor | None]) -> str:
        """Write the tables of the carries: the operands (row 0), the results (row 1) and the spare tensors (row 2)."""
        first = len(self.record.step.outputs)
        rows = (operands[: self.carried], results[: self.carried], results[first : first + self.carried])
        name = self.printer.variable("C", self.record.step.name)
        for kind in ("handle", "address"):
            texts = (", ".join(getattr(v, kind) for v in row) or "0" for row in rows)
            listed = ", ".join(f"{{{text}}}" for text in texts)
            self.printer.line(f"void* {name}_{kind[0]}[3][{max(self.carried, 1)}] = {{{listed}}};")
        self.printer.line(f"int {name}_at = 0;")
        return name

    def _read_carries(self, function: _Function, carries: str) -> None:
        """Write the present carries into the arrays of a function."""
        for k in range(self.carried):
            row = f"[{carries}_at][{k}]"
            self._put(function, k, f"{carries}_h{row}", f"{carries}_a{row}")

    def _write_carries(self, function: _Function, carries: str, row: str) -> None:
        """Write the next carries, in ``row``, into the arrays of a function."""
        for k in range(self.carried):
            place = f"[{row}][{k}]"
            self._put(function, self.count + k, f"{carries}_h{place}", f"{carries}_a{place}")

    def _copy_carries(self, carries: str, results: Sequence[_Tensor | None]) -> None:
        """Write the copy of the last carries into the results, unless they are there."""
        for k, result in enumerate(results[: self.carried]):
            assert result is not None
            size = f"({c_index(extent(result.node))}) * {result.node.dtype.itemsize}"
            copy = f"__builtin_memcpy({carries}_a[1][{k}], {carries}_a[{carries}_at][{k}], {size});"
            self.printer.line(f"if ({carries}_at != 1) {copy}")

    def _while(
        self,
        functions: Sequence[_Function],
        operands: Sequence[_Tensor | None],
        results: Sequence[_Tensor | None],
    ) -> None:
        """Write a loop that runs as long as its condition is true."""
        printer, (holds, body) = self.printer, functions
        carries, flag = self._carries(operands, results), results[-1]
        assert flag is not None
        self._set(holds, self.count, flag)
        printer.line("for (int64_t k = 1;; k++) {")
        self._read_signals()
        self._read_carries(holds, carries)
        printer.check(holds.call)
        printer.line(f"if ({printer.error_value} || !*(const char*){flag.address}) break;")
        printer.line(f"const int to = {carries}_at == 1 ? 2 : 1;")
        self._read_carries(body, carries)
        self._write_carries(body, carries, "to")
        printer.check(body.call)
        printer.line(f"{carries}_at = to;")
        printer.line("}")
        self._copy_carries(carries, results)

    def _read_signals(self) -> None:
        """Let Python handle signals now and then: a loop may not end by itself."""
        printer = self.printer
        printer.line(f"if (!(k & {SIGNAL_PERIOD - 1})) {{")
        printer.lock(True)
        printer.call_python("():\n    return ()\n", [])
        printer.lock(False)
        printer.line("}")

    def _scan(
        self, function: _Function, operands: Sequence[_Tensor | None], results: Sequence[_Tensor | None]
    ) -> None:
        """Write a loop over the slices of stacked tensors. The carries of the last iteration are the results."""
        printer, first = self.printer, self.carried
        carries = self._carries(operands, results)
        printer.line(f"for (int64_t k = 0, length = {c_index(self.record.length)}; k < length; k++) {{")
        printer.line("const int to = (length - k) & 1 ? 1 : 2;")
        self._read_carries(function, carries)
        self._write_carries(function, carries, "to")
        views = [
            self._slice(function, position, operands[position])
            for position in range(first, first + self.sliced)
        ]
        stacked = range(first, len(self.record.step.outputs))
        views += [self._slice(function, self.count + position, results[position]) for position in stacked]
        printer.check(function.call)
        for view in filter(None, views):
            printer.line(f"fx_drop(&{view});")
        printer.line(f"if ({printer.error_value}) break;")
        printer.line(f"{carries}_at = to;")
        printer.line("}")
        self._copy_carries(carries, results)

    def _slice(self, function: _Function, position: int, tensor: _Tensor | None) -> str:
        """Write slice ``k`` of a stacked tensor into the arrays of a function; return the place of its view."""
        assert tensor is not None
        layout, view = tensor.node.layout, ""
        slice_, stride = one_step(layout), c_index(layout.stride[0])
        if position in function.printed.handles:
            view = self.printer.new("t")
            sizes = f"{len(slice_.shape)}, {c_sizes(slice_.shape)}, {c_sizes(slice_.stride)}"
            self.printer.line(f"{view} = fx_view({tensor.handle}, {sizes}, k * ({stride}));")
            self.printer.check(f"!{view}")
        address = f"(char*){tensor.address} + k * ({stride}) * {layout.dtype.itemsize}"
        self._put(function, position, view, address)
        return view
