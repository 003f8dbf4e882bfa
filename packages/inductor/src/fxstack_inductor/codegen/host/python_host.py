"""The host program as Python source: it allocates, launches, calls ATen, frees and returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.codegen.c.text import parameters
from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.build import BERNOULLI
from fxstack_inductor.codegen.host.names import HELPERS, identifier, shape_text
from fxstack_inductor.codegen.host.program import HostProgram
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.lower.program import SymbolBinding
from fxstack_inductor.runtime.dropout import DRAW, DRAW_ARGUMENTS
from fxstack_interchange.code_writer import CodeWriter
from fxstack_interchange.operators.custom_operators import custom_operator
from fxstack_interchange.operators.origins import ORIGIN


def link_constants(constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return the namespace for a program's ``constants``, with operators replaced by faster callables.

    ``_op`` of an operator skips Python's own dispatch. Higher-order operators take operators as arguments, so
    programs with higher-order operators keep all operators.
    """
    if any(isinstance(value, torch_compat.HigherOrderOperator) for value in constants.values()):
        return {
            name: _with_versions(value) if value is _LEAF_FUNCTION else value
            for name, value in constants.items()
        }
    return {
        name: value._op if isinstance(value, torch_compat.OpOverload) else value
        for name, value in constants.items()
    }


_LEAF_FUNCTION: Any = getattr(torch.ops.higher_order, "invoke_leaf_function", None)
"""The operator of leaf functions; None in a torch without it."""


def _with_versions(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``operator`` as eager runs it: views share the version counters of their tensors."""
    # The operator compares versions to find writes of its function. Programs run below the kernels that count.
    key = torch_compat.DispatchKey.ADInplaceOrView

    def call(*args: object, **kwargs: object) -> Any:
        excluded = torch_compat.dispatch_tls_local_exclude_set().remove(key)
        with torch_compat.ForceDispatchKeyGuard(torch_compat.dispatch_tls_local_include_set(), excluded):
            return operator(*args, **kwargs)

    return call


def host_program(
    steps: records.HostSteps, functions: dict[str, str], *, boxed: bool = False, checks_numbers: bool = False
) -> HostProgram:
    """Return the program; ``functions``: C functions of kernels; ``boxed``: it takes and empties a list.

    With ``checks_numbers`` the program asserts that tensors have no NaN and no infinite elements.
    """
    return PythonPrinter(steps, functions, checks_numbers=checks_numbers).program(boxed=boxed)


@dataclass
class PythonPrinter(CodeWriter):
    """Writes the records of a host program as Python."""

    steps: records.HostSteps
    functions: Mapping[str, str]
    """C functions of kernels, by the kernel's name."""
    constants: dict[str, Any] = field(default_factory=dict)
    """The namespace of the program: its helpers, the graph's constants, and objects that the text names."""
    arguments: dict[str, int] = field(default_factory=dict)
    """Numbers of arguments, by kernel function."""
    known: dict[int, str] = field(default_factory=dict)
    """Names of constants by identity."""
    checks_numbers: bool = False
    """Whether the program asserts that tensors are finite (option ``nan_asserts``)."""

    def __post_init__(self) -> None:
        self.constants.update(HELPERS)
        constants = self.steps.plan.program.constants
        self.constants.update({identifier(k): v for k, v in constants.items()})

    def program(self, *, boxed: bool) -> HostProgram:
        """Return the program; ``boxed``: its argument is one list, which it empties."""
        steps = self.steps
        names = ", ".join(map(identifier, steps.plan.program.parameters))
        head = [f"def call({names}):"]
        if boxed:
            head = ["def call(inputs):", f"    [{names}] = inputs"]
        self.head()
        if self.checks_numbers:
            for name in steps.plan.program.parameters:
                self.line(f"assert_numbers({identifier(name)}, 'the input {name}')")
        for record in steps.records:
            self.write(record)
        source = "\n".join([*head, *self.lines]) + "\n"
        slots, windows = tuple(steps.slots.values()), tuple(steps.windows)
        return HostProgram(source, self.constants, self.arguments, slots, windows, steps.symbols)

    def text_of(self, record: records.Record) -> list[str]:
        """Return the lines of one step alone, for native programs that run the step in Python."""
        self.lines = []
        self.write(record)
        return self.lines

    def head(self) -> None:
        """Write the first lines: the number of threads."""
        self.line("threads = get_num_threads()")

    # --- steps ----------------------------------------------------------------------------------------

    def write(self, record: records.Record) -> None:
        """Write the lines of one record."""
        match record:
            case SymbolBinding():
                self._bind(record)
            case records.Restride(name, _, stride):
                self.line(
                    f"if {name}.stride() != {shape_text(stride)}: {name} = {self.restride(name, record)}"
                )
            case records.Borrow():
                names = ["block", *(f"p_{name}" for name in self.steps.slots), *self.steps.windows.values()]
                self.line(f"{', '.join(names)} = take({', '.join(self.steps.symbols)})")
            case records.Allocate(name, _):
                self.line(f"{name} = {self.empty(record)}")
            case records.Launch():
                self.launch(record)
            case records.Call():
                self._call(record)
            case records.Nested():
                self._nested(record)
            case records.Check():
                self._check(record)
            case records.Free(names):
                self.line(f"del {', '.join(names)}")
            case records.Empty():
                self.line("inputs.clear()")
            case records.RaiseErrors():
                self.raise_errors()
            case records.Copy(target, value):
                self.line(f"{target}.copy_({self.value(value)})")
            case records.Return(values):
                if self.steps.slots:
                    self.line("give(block)")
                self.line(f"return ({''.join(f'{self.value(v)}, ' for v in values)})")

    def _bind(self, binding: SymbolBinding) -> None:
        """Write the computation of a symbolic size."""
        self.line(f"{binding.symbol} = {binding.python(identifier(binding.source))}")

    def restride(self, tensor: str, record: records.Restride) -> str:
        """Return the text that copies ``tensor`` to the strides of ``record``."""
        return (
            f"restride({tensor}, {shape_text(record.shape)}, {shape_text(record.stride)}, {record.mutated})"
        )

    def empty(self, record: records.Allocate) -> str:
        """Return the text that allocates a tensor."""
        layout = record.layout
        dtype = self.constant(layout.dtype)
        return f"empty_strided({shape_text(layout.shape)}, {shape_text(layout.stride)}, dtype={dtype})"

    def launch(self, record: records.Launch) -> None:
        """Write the call of a kernel, and under ``nan_asserts`` the checks of what it stores."""
        kernel = record.kernel
        function = self.functions[kernel.name]
        self.arguments[function] = len(parameters(kernel))
        names = [buffer.name for buffer in record.buffers]
        values = [f"p_{name}" if name in self.steps.slots else f"{name}.data_ptr()" for name in names]
        error = ["error_address"] if kernel.checked else []
        arguments = [*values, *map(identifier, kernel.sizes), *error, "threads"]
        self.line(f"{function}({', '.join(arguments)})")
        for name in names if self.checks_numbers else ():
            if name not in self.steps.slots:
                description = f"{name}, which {kernel.name} ({', '.join(kernel.origins)}) stores"
                lines = "\n  ".join(("; the lines of the program are", *kernel.comments))
                self.line(
                    f"assert_numbers({name}, {description + lines if kernel.comments else description!r})"
                )

    def _call(self, call: records.Call) -> None:
        """Write a call, the variables of its results, and the sizes that the results determine."""
        out = {} if call.out is None else {"out": call.out}
        text = self._call_text(call.target, call.args, {**call.kwargs, **out})
        if call.declared:
            text = self.as_declared(text, call)
        assigned = call.packed or (call.results[0].name if call.results else "")
        origin = getattr(call.step, "origin", "")
        self.line((f"{assigned} = " if assigned else "") + text + (f"  {ORIGIN}{origin}" if origin else ""))
        if call.packed:
            for result in call.results:
                path = "".join(f"[{k}]" for k in result.path)
                self.line(f"{result.name} = {call.packed}{path}")
            self.line(f"del {call.packed}")
        for binding in call.bindings:
            self._bind(binding)

    def _nested(self, record: records.Nested) -> None:
        """Write a loop or branch as a call of ``runtime.nested``, whose results are copied into their memory."""
        arguments = ", ".join(map(self.value, record.arguments))
        results, call = f"{identifier(record.step.name)}_fx", record.step.form.name
        self.line(f"{results} = run_{call}({arguments})")
        if any(function.is_single for function in record.step.form.functions[-1:]):
            self.line(f"{results} = ({results},)")
        targets, sources = iter(record.results), record.step.bodies[-1].results.sources
        for position, output in enumerate(record.step.outputs):
            layout, (place,) = output.layout, output.path
            value, source = f"{results}[{place}]", sources[place]
            if source is not None and source.coords is not None:
                # A view with all elements stands for a tensor that is no result of the operator itself.
                value = f"as_strided({value}, {shape_text(layout.shape)}, {shape_text(layout.stride)})"
            if position in record.step.made:
                self.line(f"{identifier(output.name)} = {value}")
            else:
                self.line(f"{self.value(next(targets))}.copy_({value})")
        self.line(f"del {results}")

    def as_declared(self, text: str, call: records.Call) -> str:
        """Return ``text``, a call of a custom operator, inside a check of its results against the fake function."""
        plans = "".join(
            f"({d.path!r}, {self.constant(d.dtype)}, {self.constant(d.device)}, {d.sized}, "
            f"{shape_text(d.shape)}, {shape_text(d.stride)}), "
            for d in call.declared
        )
        return f"as_declared({text}, {custom_operator(call.target)!r}, ({plans}))"

    def _call_text(self, target: object, args: Iterable[Any], kwargs: dict[str, Any]) -> str:
        """Return the text of a call with positional arguments ``args`` and keywords ``kwargs``."""
        texts = [self.value(arg) for arg in args]
        texts += [f"{name}={self.value(arg)}" for name, arg in kwargs.items()]
        if target is BERNOULLI:
            self.arguments[DRAW] = DRAW_ARGUMENTS
        return f"{self.callee(target)}({', '.join(texts)})"

    def callee(self, target: object) -> str:
        """Return the text of the callable ``target``; ``repro`` overrides it to write readable names."""
        return self.value(target)

    def _check(self, record: records.Check) -> None:
        """Write the check of a result; a result that differs from the plan is replaced by a copy."""
        name, layout, dtype = record.name, record.layout, self.constant(record.dtype)
        wrong = f"{name}.dtype != {dtype}"
        if layout is not None:
            stride, shape = shape_text(layout.stride), shape_text(layout.shape)
            wrong += f" or {name}.stride() != {stride} or {name}.shape != {shape}"
        self.line(f"if {wrong}: {name} = {self.as_planned(name, record)}")

    def as_planned(self, tensor: str, record: records.Check) -> str:
        """Return the text that makes ``tensor`` a tensor of the dtype and layout of ``record``."""
        dtype, layout = self.constant(record.dtype), record.layout
        if layout is None:
            return f"as_planned({tensor}, {dtype}, None, ())"
        return f"as_planned({tensor}, {dtype}, {shape_text(layout.shape)}, {shape_text(layout.stride)})"

    def raise_errors(self) -> None:
        """Write the exit for an index out of range."""
        self.line("if error.value: raise out_of_range()")

    # --- values ---------------------------------------------------------------------------------------

    def value(self, value: object) -> str:
        """Return the Python expression of an argument or result."""
        match value:
            case records.Variable(name):
                return name
            case records.Strided(_, name, shape, stride, offset, relative):
                start = str(offset)
                if relative:
                    start = f"{name}.storage_offset()" + ("" if offset == 0 else f" + {start}")
                return f"as_strided({name}, {shape_text(shape)}, {shape_text(stride)}, {start})"
            case Expr():
                return str(value)
            case tuple() | list():
                parts = "".join(f"{self.value(v)}, " for v in value)
                return f"({parts})" if isinstance(value, tuple) else f"[{parts}]"
            case dict():
                return "{" + ", ".join(f"{k!r}: {self.value(v)}" for k, v in value.items()) + "}"
            case None | bool() | int() | str():
                return repr(value)
            case torch.SymInt() | torch.SymFloat() | torch.SymBool():
                raise AssertionError(f"unlowered symbolic value {value}")
            case _:
                return self.constant(value)

    def constant(self, value: object) -> str:
        """Return the name of an object in the program's namespace; a new object is added to it."""
        if id(value) not in self.known:
            label = getattr(value, "_opname", None) or getattr(value, "__name__", None) or ""
            name = f"c{len(self.known)}_{identifier(label)}"
            self.known[id(value)] = name
            self.constants[name] = value
        return self.known[id(value)]
