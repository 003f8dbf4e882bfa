"""The native host program: the steps of the Python one (``codegen.host.python_host``) as a C function.

The function takes Python's arguments and returns Python's tuple. In between, tensors are handles of torch's C
shim, kernels are called directly, and the interpreter's lock is released. A step that C cannot do (most ATen
calls, numbers that only Python can compute) calls back lines of the Python program, as a function of the
values that they read. A failing call through the shim is repeated by Python, which raises eager's error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fxstack_inductor.codegen.c.module import CSource
from fxstack_inductor.codegen.host.native_calls import (
    NEW_CALLS,
    OUT_CALLS,
    UNDEFINED,
    shim_arguments,
    shim_name,
    tensor_results,
)
from fxstack_inductor.codegen.host.native_program import NativeProgram
from fxstack_inductor.codegen.host.native_results import RareCases, symbols_of
from fxstack_inductor.codegen.host.native_text import (
    ascii_name,
    braced,
    c_double,
    c_sizes,
    empty_tensor,
    function,
    names_of,
)
from fxstack_inductor.codegen.host.python_host import HostWriter, identifier, shape_text
from fxstack_inductor.codegen.index_text import c_index
from fxstack_inductor.ir.expr import ZERO, Expr
from fxstack_inductor.ir.nodes import Argument, ExternCall, Node, View
from fxstack_inductor.lower.layouts import strided_view
from fxstack_inductor.lower.program import HostValue
from fxstack_inductor.runtime.native import has_function
from fxstack_inductor.schedule.outvariants import out_variant
from fxstack_inductor.schedule.plan import KernelStep, Plan, Step

# Limits: host programs are native on CPU and on one GPU, for graphs with kernels, if this Python and torch
# pass the checks of runtime/native.py. ATen calls except matrix products, convolutions and attention call
# back into Python. A failed call prints torch's message on stderr before it raises.


def native_program(plan: Plan, source: CSource, *, boxed: bool) -> NativeProgram:
    """Return the program; ``source`` has the kernels; ``boxed``: the argument is one emptied list."""
    return NativeWriter(plan, source.functions, boxed, declarations=source.declarations).run()


@dataclass
class NativeWriter(RareCases):
    plan: Plan
    functions: dict[str, str]
    boxed: bool
    lines: list[str] = field(default_factory=list)
    state: dict[str, int] = field(default_factory=dict)
    callbacks: dict[str, str] = field(default_factory=dict)
    """Names of Python functions by their text."""
    objects: dict[str, str] = field(default_factory=dict)
    """C expressions of values as Python objects, by their names in the Python program."""
    addresses: dict[str, str] = field(default_factory=dict)
    views: dict[tuple[Any, ...], str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"o": 0, "t": 0})
    declarations: str = ""
    """Declarations of the kernels, in front of the function."""
    locked: bool = True
    calls_back: bool = False

    def __post_init__(self) -> None:
        self.python = self._python()

    def _python(self) -> HostWriter:
        return HostWriter(self.plan, self.functions)

    def run(self) -> NativeProgram:
        program, python = self.plan.program, self.python
        symbols = python.begin()
        self._head()
        self._arguments()
        self._check_ranks()
        self._bind_symbols({*program.parameters, *program.constants})
        for name, node, mutated in python.checked_inputs():
            self._restride(name, node, mutated)
        self._borrow(symbols)
        last = python.last_uses()
        self._free(last.get(-1, ()))
        for position, step in enumerate(self.plan.steps):
            self._step(step)
            self._check_results(step)
            self._free(last.get(position, ()))
        self._raise_errors()
        self._mutations()
        self._results()
        return NativeProgram(
            "\n".join(text.format(name=name) for text, name in self.callbacks.items()),
            python.constants,
            python.arguments,
            tuple(python.arena.values()),
            tuple(python.windows),
            symbols,
            function(self.lines, self.counts, self._before()),
            tuple(self.state),
            self.calls_back,
        )

    # --- places -----------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def check(self, failed: str) -> None:
        self.line(f"if ({failed}) goto fail;")

    def _new(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"{kind}[{self.counts[kind] - 1}]"

    def _state(self, name: str) -> int:
        return self.state.setdefault(name, len(self.state))

    def _lock(self, wanted: bool) -> None:
        """Write code that acquires or releases the interpreter's lock, if necessary."""
        if wanted and not self.locked:
            self.line("fx.PyEval_RestoreThread(thread), thread = 0;")
        elif self.locked and not wanted:
            self.line("thread = fx.PyEval_SaveThread();")
        self.locked = wanted

    def _own(self, name: str, place: str) -> None:
        self.owned.setdefault(name, []).append(place)

    def _declare(self, name: str, value: str) -> None:
        """Declare a variable for ``value``, the handle of tensor ``name``."""
        self.handles[name] = f"h{len(self.handles)}_{ascii_name(name)}"
        self.line(f"void* {self.handles[name]} = {value};")
        self.check(f"!{self.handles[name]}")

    def _from_object(self, name: str, place: str) -> None:
        self._declare(name, f"fx_tensor({place})")
        self.objects[name] = f"fx_object_of({self.handles[name]})"

    def _before(self) -> str:
        """Return the text in front of the function."""
        return self.declarations

    # --- the beginning ----------------------------------------------------------------------------------

    def _head(self) -> None:
        self.line("uint32_t threads = 1;")
        self.line("fx.torch_get_num_threads(&threads);")

    def _arguments(self) -> None:
        program = self.plan.program
        count = len(program.parameters)
        self.check(f"fx_count(count, {1 if self.boxed else count})")
        if self.boxed:
            self.check(f"fx_count(fx.PyList_Size(arguments[0]), {count})")
        for position, parameter in enumerate(program.parameters):
            name, place = identifier(parameter), f"arguments[{position}]"
            if self.boxed:
                place = self._new("o")
                self.line(f"{place} = fx_kept(fx.PyList_GetItem(arguments[0], {position}));")
                self._own(name, place)
            self.objects[name] = place
        if self.boxed and count:
            self.check(f"fx.PyList_SetSlice(arguments[0], 0, {count}, 0)")
        for constant in program.constants:
            name = identifier(constant)
            self.objects[name] = f"fx.PyTuple_GetItem(self, {self._state(name)})"
        for tensor in program.inputs:
            self._from_object(identifier(tensor), self.objects[identifier(tensor)])

    def _check_ranks(self) -> None:
        """Check the ranks of inputs whose sizes are read: a missing dimension has no size."""
        inputs = self.plan.program.inputs
        measured = {b.source for b in self.plan.program.bindings if b.dim is not None}
        for name in sorted(measured & inputs.keys()):
            self.check(f"fx_rank({self.handles[identifier(name)]}, {len(inputs[name].shape)})")

    def _bind_symbols(self, available: set[str]) -> None:
        for binding in self.plan.program.bindings:
            if binding.source not in available:
                continue
            source, symbol = identifier(binding.source), binding.symbol
            self.python.symbols.add(symbol)
            if binding.dim is None:
                self._integer(symbol, self.objects[source])
            else:
                what = "stride" if binding.stride else "size"
                size = f"fx_{what}({self.handles[source]}, {binding.dim}){binding.less}"
                self.line(f"const int64_t {symbol} = {size};")

    def _integer(self, symbol: str, place: str) -> None:
        self.objects[symbol] = place
        self.line(f"const int64_t {symbol} = fx.PyLong_AsLongLong({place});")
        self.check(f"{symbol} == -1 && fx.PyErr_Occurred()")

    def _restride(self, name: str, node: Node, mutated: bool) -> None:
        place, handle = self._new("o"), self.handles[name]
        self._own(name, place)
        shape, stride = shape_text(node.shape), shape_text(node.layout.stride)
        symbols = symbols_of((*node.shape, *node.layout.stride))
        returned = f"return (restride(x, {shape}, {stride}, {mutated}),)"
        text = f"def {{name}}({', '.join(['x', *symbols])}):\n    {returned}\n"
        values = [self._object(symbol) for symbol in symbols]
        self.line(
            f"if (!fx_laid_out({handle}, {len(node.shape)}, {c_sizes(node.shape)}, "
            f"{c_sizes(node.layout.stride)})) {{"
        )
        self._call(text, [self.objects[name], *values], place, 1)
        self.line(f"{handle} = fx_tensor({place});")
        self.line("}")

    def _borrow(self, symbols: Sequence[str]) -> None:
        """Take a block of the arena; ``p`` has the addresses of its slots, ``w`` the tensor handles."""
        if not self.python.arena:
            return
        values = [self._object(symbol) for symbol in symbols]
        self.block, addresses, handles, _ = (self._new("o") for _ in range(4))
        self._call_state("take", values, self.block, 4)
        self.line(f"int64_t const* const p = (int64_t*)fx.PyBytes_AsString({addresses});")
        self.line(f"void* const* const w = (void**)fx.PyBytes_AsString({handles});")

    # --- values -----------------------------------------------------------------------------------------

    def tensor(self, node: Node) -> str:
        """Return the handle of a tensor or view."""
        base, offset = node, ZERO
        if isinstance(node, View):
            found = strided_view(node)
            assert found is not None
            base, offset = found
        if base in self.python.arena:
            return self._window(self.python.value(node))
        name = identifier(base.name)
        return self._view(name, node, offset) if isinstance(node, View) else self.handles[name]

    def _window(self, name: str) -> str:
        return f"w[{self.python.handles[name]}]"

    def _view(self, base: str, view: View, offset: Expr) -> str:
        """Return the handle of a view; equal views are made once, and live as long as their base."""
        key = (base, view.shape, view.layout.stride, offset)
        if key not in self.views:
            place = self.views[key] = self._new("t")
            self._own(base, place)
            shape, stride = c_sizes(view.shape), c_sizes(view.layout.stride)
            dims = len(view.shape)
            made = f"fx_view({self.handles[base]}, {dims}, {shape}, {stride}, {c_index(offset)})"
            self.line(f"{place} = {made};  /* {ascii_name(view.name)} */")
            self.check(f"!{place}")
        return self.views[key]

    def _address(self, name: str) -> str:
        """Return a pointer to the elements of buffer ``name``, read once."""
        position = self.python.positions.get(name)
        if position is not None:
            return f"(void*)p[{position}]"
        own = identifier(name)
        if own not in self.addresses:
            self.addresses[own] = f"d{len(self.addresses)}_{ascii_name(own)}"
            self.line(f"void* {self.addresses[own]} = 0;")
            self.check(f"fx_data({self.handles[own]}, &{self.addresses[own]})")
        return self.addresses[own]

    def _object(self, name: str) -> str:
        """Return a value as a Python object, created now if there is none yet; the caller needs the lock."""
        if name in self.python.handles:
            return f"fx_object_of({self._window(name)})"
        if name not in self.objects:
            place = self.objects[name] = self._new("o")
            self._own(name, place)
            made = "wrap_tensor" if name in self.handles else "PyLong_FromLongLong"
            self.line(f"{place} = fx.{made}({self.handles.get(name, name)});")
            self.check(f"!{place}")
        return self.objects[name]

    def _number(self, value: Expr) -> str:
        """Return a number as a Python object. Python computes it, as Python's integers cannot overflow."""
        text, symbols = str(value), sorted({v.name for v in value.variables})
        if not symbols:
            return self._constant(value.as_int())
        if text not in symbols and text not in self.objects:
            place = self.objects[text] = self._new("o")
            returned = f"def {{name}}({', '.join(symbols)}):\n    return ({text},)\n"
            self._call(returned, [self._object(symbol) for symbol in symbols], place, 1)
        return self._object(text)

    def _constant(self, value: object) -> str:
        return f"fx.PyTuple_GetItem(self, {self._state(self.python.constant(value))})"

    # --- steps ------------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        if isinstance(step, KernelStep):
            self._kernel(step)
        elif not isinstance(step, ExternCall) or not (self._shim_out(step) or self._shim_new(step)):
            outputs = step.outputs if isinstance(step, ExternCall) else ()
            lines = self.python.lines_of(step)
            read = [node for node in outputs if node in self.python.needed]
            tensors = [node for node in read if not isinstance(node, Argument)]
            self._call_back(lines, {identifier(node.name) for node in tensors})

    def _kernel(self, step: KernelStep) -> None:
        self._lock(False)
        for node in step.stored:
            self._allocate(node)
        kernel = step.kernel
        values = [self._address(ref.name) for ref in kernel.buffers]
        error = ["&error"] if kernel.checked else []
        arguments = ", ".join([*values, *kernel.sizes, *error, "threads"])
        self.line(f"{self.functions[kernel.name]}({arguments});")

    def _allocate(self, node: Node) -> None:
        if node in self.python.arena:
            return
        place = self._new("t")
        self._declare(identifier(node.name), f"{place} = {empty_tensor(node.layout)}")
        self._own(identifier(node.name), place)

    def _shim_out(self, step: ExternCall) -> bool:
        """Call ``step`` through the shim into planned memory, if possible; return whether it was."""
        device = self._device(step)
        out = out_variant(step, device)
        rule = OUT_CALLS.get(out)
        call = None if out is None or rule is None else rule(step)
        if call is None or not has_function(shim_name(call.function, device)):
            return False
        self._lock(False)
        result = step.outputs[0]
        self._allocate(result)
        tensors = [self.tensor(node) for node in (result, *self.python.out_arguments(step))]
        keywords = "".join(f"{name}={value!r}, " for name, value in call.keywords)
        values = ", ".join([*tensors, *map(c_double, call.numbers)])
        made = f"fx.{shim_name(call.function, device)}({values})"
        operator = self.python.constant(out)
        self._again(
            "def {name}(out, *args):\n    with below_autograd():\n"
            f"        {operator}(*args, {keywords}out=out)\n",
            made,
            tensors,
        )
        return True

    def _device(self, step: ExternCall) -> str:
        """Return the device type of all tensors of ``step``, or an empty string if they differ."""
        found = {node.device.type for node in (*step.reads, *step.outputs)}
        return found.pop() if len(found) == 1 else ""

    def _shim_new(self, step: ExternCall) -> bool:
        """Call ``step``, which makes new tensors, through the shim, if possible; return whether it was."""
        if step.target not in NEW_CALLS:
            return False
        function_ = shim_name(NEW_CALLS[step.target], self._device(step))
        arguments = shim_arguments(step) if has_function(function_) else None
        returned = tensor_results(step)
        if arguments is None or not {o.path[0] if o.path else 0 for o in step.outputs} <= returned:
            return False
        self._lock(False)
        self.calls_back = True
        handles = [[self.tensor(node) for node in a.tensors] for a in arguments]
        undefined = self._undefined() if any(a.text == UNDEFINED for a in arguments) else ""
        texts = [
            undefined if a.text == UNDEFINED else a.text.format(*own)
            for a, own in zip(arguments, handles, strict=True)
        ]
        flat = [handle for own in handles for handle in own]
        places = {k: self._new("t") for k in sorted(returned)}
        count = len(step.target._schema.returns)
        ignored = "(int64_t[]){0}"
        results = [f"&{places[k]}" if k in places else ignored for k in range(count)]
        made = f"fx.{function_}({', '.join([*texts, *results])})"
        names = iter(f"tensors[{k}]" for k in range(len(flat)))
        again = ", ".join(a.again.format(*(next(names) for _ in a.tensors)) for a in arguments)
        operator = self.python.constant(step.target)
        self._again(f"def {{name}}(*tensors):\n    {operator}({again})\n", made, flat, stop=True)
        for output in step.outputs:
            place = places.pop(output.path[0] if output.path else 0)
            self._declare(identifier(output.name), place)
            self._own(identifier(output.name), place)
        for unused in places.values():
            self.line(f"fx_drop(&{unused});")
        self._bind_symbols({output.name for output in step.outputs})
        return True

    def _again(self, text: str, made: str, handles: Sequence[str], *, stop: bool = False) -> None:
        """Call ``made``; if it fails, call the Python function ``text``, and with ``stop`` fail even then."""
        position = self._state(self._callback(text))
        tensors = f"(void*[]){{{', '.join(handles)}}}, {len(handles)}"
        failed = f"fx_again(&thread, self, {position}, {tensors})"
        self.check(f"{made} && ({failed} || {int(stop)})")

    def _callback(self, text: str) -> str:
        return self.callbacks.setdefault(text, f"back_{len(self.callbacks)}")

    def _call(self, text: str, values: Sequence[str], place: str, wanted: int) -> None:
        self._call_state(self._callback(text), values, place, wanted)

    def _call_state(self, name: str, values: Sequence[str], place: str, wanted: int) -> None:
        function_ = f"fx.PyTuple_GetItem(self, {self._state(name)})"
        arguments = f"(fx_object*[]){{{', '.join(values) or '0'}}}, {len(values)}"
        self.check(f"fx_call({function_}, {arguments}, {f'&{place}' if wanted else '0'}, {wanted})")

    def _call_back(self, lines: Sequence[str], tensors: set[str]) -> None:
        """Run lines of the Python program; ``tensors`` are the names of tensors among the names they set."""
        self._lock(True)
        self.calls_back = True
        read, made = names_of(lines)
        known = {*self.objects, *self.handles, *self.python.handles, *self._symbols()}
        inputs = [name for name in read if name in known]
        returned = f"    return ({''.join(f'{name}, ' for name in made)})"
        text = "\n".join([f"def {{name}}({', '.join(inputs)}):", *map(braced, lines), returned])
        values = [self._object(name) for name in inputs]
        places = [self._new("o") for _ in made]
        self._call(f"{text}\n", values, places[0] if places else "", len(made))
        symbols = self._symbols()
        for name, place in zip(made, places, strict=True):
            if name in tensors:
                self._from_object(name, place)
            elif name in symbols:
                self._integer(name, place)
            else:
                self.objects[name] = place
            self._own(name, place)

    def _symbols(self) -> set[str]:
        return {binding.symbol for binding in self.plan.program.bindings}

    # --- the end ----------------------------------------------------------------------------------------

    def _free(self, names: Iterable[str]) -> None:
        names = list(map(identifier, names))
        self._release(names)
        for name in names:
            if name in self._rerun_with:
                continue
            for place in self.owned.pop(name, ()):
                if place.startswith("o"):
                    self._lock(True)
                    self.line(f"fx_set(&{place}, 0);")
                else:
                    self.line(f"fx_drop(&{place});")

    @cached_property
    def _rerun_with(self) -> frozenset[str]:
        """The parameters with which the program is run again if an index is out of range."""
        again = self.boxed and self._checked
        return frozenset(map(identifier, self.plan.program.parameters if again else ()))

    @cached_property
    def _checked(self) -> bool:
        return any(isinstance(s, KernelStep) and s.kernel.checked for s in self.plan.steps)

    def _raise_errors(self) -> None:
        self._lock(True)
        if self._checked:
            self.line("if (error) {")
            self._call("def {name}():\n    raise out_of_range\n", [], "", 0)
            self.line("}")

    def _mutations(self) -> None:
        for line in self.python.mutation_lines():
            self._call_back([line], set())

    def _results(self) -> None:
        outputs = self.plan.program.outputs
        texts = [self._result(value) for value in outputs]
        self.line(f"result = fx.PyTuple_New({len(outputs)});")
        self.check("!result")
        for position, text in enumerate(texts):
            self.check(f"fx_put(result, {position}, {text})")
        if self.python.arena:
            self._call_state("give", [self.block], "", 0)

    def _result(self, value: object) -> str:
        """Return the C expression of a new reference to a result; its value is 0 on failure."""
        match value:
            case Node():
                name = identifier(value.name)
                found = None if isinstance(value, View) else self.objects.get(name)
                return f"fx_kept({found})" if found else f"fx.wrap_tensor({self.tensor(value)})"
            case Expr():
                return f"fx_kept({self._number(value)})"
            case HostValue(name):
                return f"fx_kept({self.objects[identifier(name)]})"
            case _:
                return f"fx_kept({self._constant(value)})"
