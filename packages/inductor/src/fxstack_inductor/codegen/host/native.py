"""The native host program: the records of a host program as a C function.

The function takes Python's arguments and returns Python's tuple. In between, tensors are handles of torch's C
shim, kernels are called directly, and the interpreter's lock is released. A step that C cannot do (most ATen
calls, numbers that only Python can compute) calls back lines of the Python program, as a function of the
values that they read. A failing call through the shim is repeated by Python, which raises eager's error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.names import DTYPE_CODES, identifier, symbols_of
from fxstack_inductor.codegen.host.native_calls import UNDEFINED, ShimCall, shim_call
from fxstack_inductor.codegen.host.native_launches import allocations_first, kind_of_run, write_launches
from fxstack_inductor.codegen.host.native_nested import Printed, write_nested
from fxstack_inductor.codegen.host.native_numbers import Numbers, write_integer
from fxstack_inductor.codegen.host.native_text import (
    CText,
    ascii_name,
    c_sizes,
    callback,
    empty_tensor,
    returning,
    write_allocations,
    write_constants,
    write_inputs,
    write_restrides,
    write_results,
    write_views,
)
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.codegen.host.python_host import PythonPrinter
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.lower.program import SymbolBinding
from fxstack_inductor.schedule.steps import Body

# Limits: host programs are native on CPU and on one GPU, for graphs with kernels, if this Python and torch
# pass the checks of runtime/native.py. ATen calls except matrix products, convolutions and attention call
# back into Python. A failed call prints torch's message on stderr before it raises.

UNKNOWN_DTYPE = -1


@dataclass
class NativePrinter(CText):
    """Writes the records of a host program as C. ``python`` names the objects, and writes the steps that C cannot do."""

    steps: records.HostSteps
    """The records to write."""
    python: PythonPrinter
    """Writes the lines of the steps that call back."""
    boxed: bool
    """Whether the argument is one list, which the program empties."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """C functions of kernels, by the kernel's name."""
    handles: dict[str, str] = field(default_factory=dict)
    """C expressions of tensor handles, by variable."""
    objects: dict[str, str] = field(default_factory=dict)
    """C expressions of values as Python objects, by variable or by the text of a number."""
    addresses: dict[str, str] = field(default_factory=dict)
    """C expressions of the addresses of elements, by variable."""
    views: dict[records.Strided, str] = field(default_factory=dict)
    """Handles of the views made so far."""
    numbers: Numbers = field(init=False)
    """The numbers that the program computes in C."""
    arena_block: str = ""
    """The place of the borrowed block; empty without arena."""
    undefined: str = ""
    """The place of the undefined tensor; empty until a call needs it."""
    print_body: Callable[[NativePrinter, Body], Printed] | None = None
    """Writes a function that an operator calls; None for programs without such functions."""
    printed: dict[str, Printed] = field(default_factory=dict)
    """The functions that operators call, by name."""
    error_address: str = "&error"
    """The C expression of the address of the flag that kernels set after an index out of range."""
    error_value: str = "error"
    """The C expression of this flag."""
    calls_back: bool = False
    """Whether a step calls back into Python, or a call of the shim makes new tensors: both use torch's dispatcher.

    The loaded program then runs below autograd.
    """

    def __post_init__(self) -> None:
        self.numbers = Numbers(self)

    def program(self, before: str) -> HostProgram:
        """Write all records and return the program; ``before``: C text in front of the function."""
        self.head()
        self._arguments()
        self._write_records()
        functions = [function.text for function in self.printed.values()]
        return HostProgram(
            self.callback_source(),
            self.python.constants,
            self.python.arguments,
            tuple(self.steps.slots.values()),
            tuple(self.steps.windows),
            self.steps.symbols,
            c=self.function("\n".join([before, self.tables.text(), *functions])),
            native=True,
            state=tuple(self.state),
            calls_back=self.calls_back,
            workspaces=tuple(function.memory for function in self.printed.values()),
        )

    def function_of(self, body: Body) -> Printed:
        """Return a function that an operator calls, in C; its objects are those of the program."""
        assert self.print_body is not None
        if body.name not in self.printed:
            self.printed[body.name] = self.print_body(self, body)
        return self.printed[body.name]

    def _write_records(self) -> None:
        """Write all records; neighbouring allocations, checks of strides or launches become loops over tables."""
        inputs = frozenset() if self.boxed else frozenset(map(identifier, self.steps.plan.program.inputs))
        for kind, group in groupby(allocations_first(self.steps.records, inputs), key=kind_of_run):
            run = list(group)
            restrides = [record for record in run if isinstance(record, records.Restride)]
            allocations = [record for record in run if isinstance(record, records.Allocate)]
            if restrides:
                write_restrides(self, restrides)
            elif allocations:
                self.lock(False)
                self.allocate_all(allocations)
            elif kind is records.Launch:
                self.launch_all([r for r in run if isinstance(r, (records.Launch, records.Free))])
            else:
                for record in run:
                    self.write(record)

    def write(self, record: records.Record) -> None:
        """Write the C of one record."""
        match record:
            case SymbolBinding():
                self._bind(record)
            case records.Borrow():
                self._borrow()
            case records.Allocate():
                self.lock(False)
                self.allocate(record)
            case records.Launch():
                self.lock(False)
                self.launch(record)
            case records.Call():
                self._call(record)
            case records.Nested():
                write_nested(self, record)
            case records.Check():
                self._check(record)
            case records.Free(names):
                self._free(names)
            case records.Empty():
                self._empty()
            case records.RaiseErrors():
                self.lock(True)
                self.raise_errors()
            case records.Copy(target, value):
                self._call_back(record, [target, *records.names_in(value)], {})
            case records.Return(values):
                self.lock(True)
                self._return(values)

    # --- variables --------------------------------------------------------------------------------------

    def declare(self, name: str, value: str) -> None:
        """Declare a C variable for ``value``, the handle of tensor ``name``."""
        self.handles[name] = self.variable("h", name)
        self.line(f"void* {self.handles[name]} = {value};")
        self.check(f"!{self.handles[name]}")

    def _from_object(self, name: str, place: str) -> None:
        """Declare the handle of tensor ``name``, whose Python object is in ``place``."""
        self.declare(name, f"fx_tensor({place})")
        self.objects[name] = f"fx_object_of({self.handles[name]})"

    def _integer(self, symbol: str, place: str) -> None:
        """Declare the C integer ``symbol``, whose Python object is in ``place``."""
        self.objects[symbol] = place
        self.line(f"const int64_t {symbol} = fx.PyLong_AsLongLong({place});")
        self.check(f"{symbol} == -1 && fx.PyErr_Occurred()")

    def _bind(self, binding: SymbolBinding) -> None:
        """Declare a symbolic size: a size or stride of a tensor, or an integer."""
        source, symbol = identifier(binding.source), binding.symbol
        if binding.dim is None:
            self._integer(symbol, self.objects[source])
        else:
            kind = "stride" if binding.stride else "size"
            size = f"fx_{kind}({self.handles[source]}, {binding.dim}){binding.less}"
            self.line(f"const int64_t {symbol} = {size};")

    def tensor(self, value: records.Variable | records.Strided) -> str:
        """Return a tensor's handle; equal views are made once, and live as long as their base."""
        if isinstance(value, records.Variable):
            return self.handles[value.name]
        if value not in self.views:
            place = self.views[value] = self.new("t")
            self.keep_alive(value.base, place)
            shape, stride = c_sizes(value.shape), c_sizes(value.stride)
            layout = f"{len(value.shape)}, {shape}, {stride}, {c_index(value.offset)}"
            view = f"fx_view({self.handles[value.base]}, {layout})"
            self.line(f"{place} = {view};  /* {ascii_name(value.name)} */")
            self.check(f"!{place}")
        return self.views[value]

    def address(self, buffer: records.Buffer) -> str:
        """Return a pointer to the elements of a tensor, read once."""
        name = buffer.name
        if name not in self.addresses:
            self.addresses[name] = self.variable("d", name)
            self.line(f"void* {self.addresses[name]} = 0;")
            self.check(f"fx_data({self.handles[name]}, &{self.addresses[name]})")
        return self.addresses[name]

    def _object(self, name: str) -> str:
        """Return a value as a Python object, created now if there is none yet; the caller needs the lock."""
        if name in self.numbers.variables and name not in self.objects:
            return self.numbers.boxed(name)
        if name not in self.objects:
            place = self.objects[name] = self.new("o")
            self.keep_alive(name, place)
            function = "wrap_tensor" if name in self.handles else "PyLong_FromLongLong"
            self.line(f"{place} = fx.{function}({self.handles.get(name, name)});")
            self.check(f"!{place}")
        return self.objects[name]

    def number(self, value: Expr) -> str:
        """Return the C expression of an integer expression as a Python object."""
        text, symbols = str(value), symbols_of((value,))
        if not symbols:
            return self._constant(value.as_int())
        return self._object(text if text in symbols else self.numbers.integer(value))

    def _constant(self, value: object) -> str:
        """Return the C expression of a constant as a Python object, which is bound to the program."""
        return self.bound(self.python.constant(value))

    def call_python(self, text: str, values: Sequence[str], place: str = "", wanted: int = 0) -> None:
        """Write the call of the Python function ``text``; ``wanted`` results are stored from ``place`` on."""
        self.call(self.callback(text), values, place, wanted)

    # --- the beginning ----------------------------------------------------------------------------------

    def head(self) -> None:
        """Write the first lines: the number of threads."""
        self.line("uint32_t threads = 1;")
        self.line("fx.torch_get_num_threads(&threads);")

    def _arguments(self) -> None:
        """Write the beginning: count the arguments, and take handles of the tensors among them."""
        program = self.steps.plan.program
        count = len(program.parameters)
        self.check(f"fx_count(count, {1 if self.boxed else count})")
        if self.boxed:
            self.check(f"fx_count(fx.PyList_Size(arguments[0]), {count})")
        names = list(map(identifier, program.parameters))
        places = [self.new("o") if self.boxed else f"arguments[{k}]" for k in range(count)]
        self.objects |= dict(zip(names, places, strict=True))
        if self.boxed and count:
            self.line(f"fx_take(arguments[0], {count}, &{places[0]});")
            for name, place in zip(names, places, strict=True):
                self.keep_alive(name, place)
        for is_tensor, group in groupby(program.parameters, key=program.inputs.__contains__):
            if is_tensor:
                write_inputs(self, list(map(identifier, group)))
        write_constants(self, list(map(identifier, program.constants)))
        # A missing dimension has no size.
        measured = {b.source for b in program.bindings if b.dim is not None}
        for source in sorted(measured & program.inputs.keys()):
            rank = len(program.inputs[source].shape)
            self.check(f"fx_rank({self.handles[identifier(source)]}, {rank})")

    def restride(self, record: records.Restride) -> None:
        """Write the check of an input's strides; Python copies an input with other strides."""
        place, handle = self.new("o"), self.handles[record.name]
        self.keep_alive(record.name, place)
        symbols = symbols_of((*record.shape, *record.stride))
        text = returning(["x", *symbols], self.python.restride("x", record))
        values = [self.objects[record.name], *map(self._object, symbols)]
        layout = f"{len(record.shape)}, {c_sizes(record.shape)}, {c_sizes(record.stride)}"
        self.line(f"if (!fx_laid_out({handle}, {layout})) {{")
        self.call_python(text, values, place, 1)
        self.line(f"{handle} = fx_tensor({place});")
        self.line("}")

    def _borrow(self) -> None:
        """Take a block of the arena; ``p`` has the addresses of its slots, ``w`` the tensor handles."""
        values = list(map(self._object, self.steps.symbols))
        self.arena_block, addresses, handles, _ = (self.new("o") for _ in range(4))
        self.call("take", values, self.arena_block, 4)
        self.line(f"int64_t const* const p = (int64_t*)fx.PyBytes_AsString({addresses});")
        self.line(f"void* const* const w = places.w = (void**)fx.PyBytes_AsString({handles});")
        self._name_memory()

    def _name_memory(self) -> None:
        """Let tensors in the arena's block have the addresses ``p`` and the handles ``w``."""
        self.addresses |= {name: f"(void*)p[{k}]" for k, name in enumerate(self.steps.slots)}
        for position, name in enumerate(self.steps.windows.values()):
            self.handles[name] = f"w[{position}]"
            self.objects[name] = f"fx_object_of(w[{position}])"

    # --- steps ------------------------------------------------------------------------------------------

    def launch(self, record: records.Launch) -> None:
        """Write the call of a kernel's C function."""
        kernel = record.kernel
        values = [self.address(buffer) for buffer in record.buffers]
        error = [self.error_address] if kernel.checked else []
        arguments = ", ".join([*values, *kernel.sizes, *error, "threads"])
        self.write_profiled(kernel.title, f"{self.functions[kernel.name]}({arguments});")

    def launch_all(self, run: Sequence[records.Launch | records.Free]) -> None:
        """Write launches, and the releases between them."""
        write_launches(self, run, self.write)

    def allocate(self, record: records.Allocate) -> None:
        """Write the allocation of a tensor outside of the arena."""
        place = self.new("t")
        self.declare(record.name, f"{place} = {empty_tensor(record.layout)}")
        self.keep_alive(record.name, place)

    def allocate_all(self, run: Sequence[records.Allocate]) -> None:
        """Write the allocations of tensors outside of the arena."""
        write_allocations(self, run)

    def _call(self, record: records.Call) -> None:
        """Write a call: through the shim or in C if possible, else by Python."""
        shim = shim_call(record)
        if shim is None and self._compute(record):
            return
        if shim is None:
            self._call_back(record, record.reads, record.sets)
            return
        self.lock(False)
        if shim.allocated is not None:
            self.allocate(shim.allocated)
        self._call_shim(record, shim)
        for binding in record.bindings:
            self._bind(binding)

    def _compute(self, record: records.Call) -> bool:
        """Write a call that makes a number, and return True; return False if C cannot compute it."""
        lines = self.python.text_of(record)
        address = self.numbers.tensor(record, lines, self.objects)
        if address is not None:
            self.addresses[record.results[0].name] = address
        return (
            address is not None
            or write_integer(self, record)
            or self.numbers.compute(record, lines, self.objects)
        )

    def _call_shim(self, record: records.Call, shim: ShimCall) -> None:
        """Write a call of torch's C shim; results of the operator that nothing reads are released."""
        handles = [[self.tensor(value) for value in argument.tensors] for argument in shim.arguments]
        texts = []
        for argument, tensors in zip(shim.arguments, handles, strict=True):
            undefined = self._undefined() if argument.text == UNDEFINED else ""
            texts.append(undefined or argument.text.format(*tensors))
        flat = [handle for tensors in handles for handle in tensors]
        places = {position: self.new("t") for position in shim.tensors}
        texts += [f"&{places[k]}" if k in places else "(int64_t[]){0}" for k in range(shim.returns)]
        call = f"fx.{shim.function}({', '.join(texts)})"
        python_call = shim.again.format(self.python.constant(shim.target))
        self.call_again(call, shim.target._schema.name, python_call, flat, stop=shim.returns > 0)
        self.calls_back |= shim.returns > 0
        for result in record.results if shim.returns else ():
            place = places.pop(result.position)
            self.declare(result.name, place)
            self.keep_alive(result.name, place)
        for unused in places.values():
            self.line(f"fx_drop(&{unused});")

    def _undefined(self) -> str:
        """Return the handle of an undefined tensor, which stands for None in calls of the shim; made once."""
        if not self.undefined:
            self.undefined = self.new("t")
            self.check(f"fx.aoti_torch_new_uninitialized_tensor(&{self.undefined})")
        return self.undefined

    def _call_back(
        self, record: records.Record, reads: Sequence[str], sets: Mapping[str, records.Kind]
    ) -> None:
        """Run a step in Python; ``sets`` has the kinds of the variables that the step sets."""
        self.lock(True)
        self.calls_back = True
        returned = f"    return ({''.join(f'{name}, ' for name in sets)})"
        text = callback(reads, [*self.python.text_of(record), returned])
        values = [self._object(name) for name in reads]
        places = [self.new("o") for _ in sets]
        self.call_python(text, values, places[0] if places else "", len(sets))
        for (name, kind), place in zip(sets.items(), places, strict=True):
            if kind == "tensor":
                self._from_object(name, place)
            elif kind == "integer":
                self._integer(name, place)
            else:
                self.objects[name] = place
            self.keep_alive(name, place)

    def _check(self, record: records.Check) -> None:
        """Write the check of a result: Python copies it if only strides differ from the plan, else raises."""
        layout = record.layout
        if record.name in self.numbers.variables:
            return
        shape, stride, dims = (
            ((), (), -1) if layout is None else (layout.shape, layout.stride, len(layout.shape))
        )
        symbols = symbols_of((*shape, *stride))
        text = returning(["x", *symbols], self.python.as_planned("x", record))
        code = DTYPE_CODES.get(record.dtype, UNKNOWN_DTYPE)
        place, handle = self.new_rare(record.name), self.handles[record.name]
        self.line(f"if (fx_otherwise({handle}, {code}, {dims}, {c_sizes(shape)}, {c_sizes(stride)})) {{")
        self.line(f"{handle} = {self.by_python(text, handle, symbols, place)};")
        self.check(f"!{handle}")
        self.line("}")

    # --- the end ----------------------------------------------------------------------------------------

    def _free(self, names: Sequence[str]) -> None:
        """Write the release of variables after their last use."""
        self.release_rare(names)
        self.release(names)

    def _empty(self) -> None:
        """Write that the list of arguments is emptied."""
        count = len(self.steps.plan.program.parameters)
        if count:
            self.lock(True)
            self.check(f"fx.PyList_SetSlice(arguments[0], 0, {count}, 0)")

    def raise_errors(self) -> None:
        """Write the exit for an index out of range: the caller then runs the graph by ATen."""
        self.line("if (error) {")
        self.call_python("():\n    raise out_of_range\n", [])
        self.line("}")

    def _return(self, values: Sequence[Any]) -> None:
        """Write the tuple of results, and give the arena's block back."""
        write_views(self, values)
        texts = [self._result(value) for value in values]
        self.line(f"result = fx.PyTuple_New({len(values)});")
        self.check("!result")
        write_results(self, texts)
        if self.steps.slots:
            self.call("give", [self.arena_block])

    def _result(self, value: object) -> str:
        """Return the C expression of a new reference to a result; its value is 0 on failure."""
        match value:
            case records.Variable(name) if name in self.objects or name in self.numbers.variables:
                return f"fx_kept({self._object(name)})"
            case records.Variable() | records.Strided():
                return f"fx.wrap_tensor({self.tensor(value)})"
            case Expr():
                return f"fx_kept({self.number(value)})"
            case _:
                return f"fx_kept({self._constant(value)})"
