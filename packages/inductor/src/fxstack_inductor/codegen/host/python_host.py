"""The host program as Python source: it allocates, launches, calls ATen, frees and returns."""

from __future__ import annotations

import keyword
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.codegen.c.text import parameters
from fxstack_inductor.ir.expr import ZERO, Expr, Var
from fxstack_inductor.ir.nodes import Argument, Extern, ExternCall, Input, Layout, Node, View
from fxstack_inductor.lower.layouts import strided_view
from fxstack_inductor.lower.program import HostCall, HostValue
from fxstack_inductor.runtime.arena import Window
from fxstack_inductor.runtime.dropout import DRAW, DRAW_ARGUMENTS
from fxstack_inductor.runtime.layout import as_planned, restride
from fxstack_inductor.schedule.fusion.inlining import base_of
from fxstack_inductor.schedule.memory import Slot, added_to, slots, used
from fxstack_inductor.schedule.outvariants import draws_bernoulli, out_variant
from fxstack_inductor.schedule.plan import KernelStep, Plan, Step

HELPERS = MappingProxyType(
    {
        "torch": torch,
        "as_planned": as_planned,
        "restride": restride,
        "empty_strided": torch.empty_strided,
        "as_strided": torch.as_strided,
        "get_num_threads": torch.get_num_threads,
        "below_autograd": torch_compat.AutoDispatchBelowAutograd,
    }
)


@dataclass(frozen=True)
class HostProgram:
    """``source`` defines ``call``, for a namespace of ``constants`` and the loaded kernel functions."""

    source: str
    constants: dict[str, Any]
    arguments: dict[str, int]
    """The kernel functions with their numbers of arguments."""
    slots: tuple[Slot, ...]
    windows: tuple[Window, ...]
    symbols: tuple[str, ...]
    """Slots, windows and symbols describe the program's ``runtime.arena.Workspace``."""


def linked(constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return the namespace for a program's ``constants``, with operators replaced by faster callables.

    ``_op`` of an operator skips Python's own dispatch. Higher-order operators take operators as arguments, so
    programs with higher-order operators keep all operators.
    """
    if any(isinstance(value, torch_compat.HigherOrderOperator) for value in constants.values()):
        return dict(constants)
    return {
        name: value._op if isinstance(value, torch_compat.OpOverload) else value
        for name, value in constants.items()
    }


def host_program(plan: Plan, functions: dict[str, str], *, boxed: bool = False) -> HostProgram:
    """Return the program; ``functions``: C functions of kernels; ``boxed``: it takes and empties a list."""
    return HostWriter(plan, functions, boxed=boxed).run()


@dataclass
class HostWriter:
    plan: Plan
    functions: dict[str, str]
    boxed: bool = False
    lines: list[str] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, int] = field(default_factory=dict)
    known: dict[int, str] = field(default_factory=dict)
    """Names of constants by identity."""
    arena: dict[Node, Slot] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    """Positions of the nodes of ``arena``, by name."""
    windows: dict[Window, str] = field(default_factory=dict)
    handles: dict[str, int] = field(default_factory=dict)
    """Positions in ``windows``, by name."""
    pointers: dict[str, str] = field(default_factory=dict)
    symbols: set[str] = field(default_factory=set)
    """Symbolic sizes that have been bound so far."""

    def run(self) -> HostProgram:
        program = self.plan.program
        symbols = self.begin()
        self._bind_symbols(set(program.parameters) | set(program.constants))
        self._check_layouts()
        prologue, self.lines = self.lines, []
        last = self.last_uses()
        self._free(last.get(-1, ()))
        for position, step in enumerate(self.plan.steps):
            self._step(step)
            self._check_results(step)
            self._free(last.get(position, ()))
        self._raise_errors()
        self._mutations()
        results = [self.value(value) for value in program.outputs]
        names = [identifier(name) for name in program.parameters]
        head = [*self._signature(names), *self._head()]
        lines = [*head, *prologue, *self._borrow(symbols), *self.lines, *self._return()]
        lines.append(f"    return ({''.join(f'{r}, ' for r in results)})")
        return HostProgram(
            "\n".join(lines) + "\n",
            self.constants,
            self.arguments,
            tuple(self.arena.values()),
            tuple(self.windows),
            symbols,
        )

    def _signature(self, names: list[str]) -> list[str]:
        if not self.boxed:
            return [f"def call({', '.join(names)}):"]
        return ["def call(inputs):", f"    [{', '.join(names)}] = inputs", "    inputs.clear()"]

    def begin(self) -> tuple[str, ...]:
        """Plan the arena; return the symbols that its size depends on."""
        self.constants.update(HELPERS)
        constants = self.plan.program.constants
        self.constants.update({identifier(k): v for k, v in constants.items()})
        return self._plan_arena()

    def lines_of(self, step: Step) -> list[str]:
        """Return the lines of one step alone."""
        self.lines = []
        self._step(step)
        return self.lines

    def mutation_lines(self) -> list[str]:
        self.lines = []
        self._mutations()
        return self.lines

    def _head(self) -> list[str]:
        return ["    threads = get_num_threads()"]

    def _check_layouts(self) -> None:
        """Check input strides, on which kernels rely; an input with other strides is copied."""
        for own, node, mutated in self.checked_inputs():
            stride = shape_text(node.layout.stride)
            self.line(
                f"if {own}.stride() != {stride}: "
                f"{own} = restride({own}, {shape_text(node.shape)}, {stride}, {mutated})"
            )

    def checked_inputs(self) -> Iterable[tuple[str, Input, bool]]:
        """Yield the inputs whose strides matter, by name, and whether the graph writes to them."""
        program = self.plan.program
        mutated = {m.target for m in program.mutations}
        read = {n for s in self.plan.steps if isinstance(s, KernelStep) for n in s.reads}
        used = list(_nodes(program.outputs))
        used += [v for s in self.plan.steps if not isinstance(s, KernelStep) for v in s.reads]
        read |= {base_of(view) for view in used if isinstance(view, View)}
        for name in program.parameters:
            node = program.inputs.get(name)
            if node is not None and node in read:
                yield identifier(name), node, node in mutated

    # --- what operators return --------------------------------------------------------------------------

    @cached_property
    def needed(self) -> set[Node]:
        """The tensors whose memory anything reads."""
        program = self.plan.program
        found = {n for step in self.plan.steps for n in map(base_of, step.reads)}
        found |= {base_of(value) for value in _nodes(program.outputs)}
        return found | {base_of(m.value) for m in program.mutations}

    @cached_property
    def relied(self) -> set[Node]:
        """Results of ATen calls whose strides matter to kernels, views, or the order of random numbers."""
        steps = self.plan.steps
        read = {n for s in steps if isinstance(s, KernelStep) or _draws(s) for n in s.reads}
        used = [v for s in steps if not isinstance(s, KernelStep) for v in s.reads]
        used += [v for v in self.plan.program.outputs if isinstance(v, Node)]
        return read | {base_of(view) for view in used if isinstance(view, View)}

    def results_of(self, step: Step) -> list[tuple[Extern, Layout | None]]:
        """Return the tensors from ATen's call ``step`` that are read, with the layouts to rely on.

        A layout whose sizes are not computed yet is given as None.
        """
        if not isinstance(step, ExternCall) or out_variant(step) is not None:
            return []
        return [
            (output, output.layout if output in self.relied and self._knows(output) else None)
            for output in step.outputs
            if output in self.needed and output.strided and not isinstance(output, Argument)
        ]

    def _knows(self, node: Node) -> bool:
        variables = (v for e in (*node.shape, *node.layout.stride) for v in e.variables)
        return all(v.name in self.symbols for v in variables)

    def _check_results(self, step: Step) -> None:
        """Check the results of operators: kernels rely on the graph's dtypes, shapes and strides."""
        for output, layout in self.results_of(step):
            own, dtype = identifier(output.name), self.constant(output.dtype)
            if layout is None:
                self.line(f"if {own}.dtype != {dtype}: as_planned({own}, {dtype}, None, ())")
                continue
            shape, stride = shape_text(layout.shape), shape_text(layout.stride)
            self.line(
                f"if {own}.dtype != {dtype} or {own}.stride() != {stride} or {own}.shape != {shape}: "
                f"{own} = as_planned({own}, {dtype}, {shape}, {stride})"
            )

    # --- the arena ------------------------------------------------------------------------------------

    def _plan_arena(self) -> tuple[str, ...]:
        """Choose the slots whose sizes are known when the call starts; return the symbols in the sizes."""
        program = self.plan.program
        early = set(program.parameters) | set(program.constants)
        known = {b.symbol for b in program.bindings if b.source in early}
        viewed = self._viewed()
        names: set[str] = set()
        for node, slot in slots(self.plan).items():
            seen = viewed[node]
            if {v.name for v in slot.elements.variables} | seen <= known:
                self.positions[node.name] = len(self.arena)
                self.arena[node] = slot
                names |= seen.union(v.name for v in _variables(slot))
        return tuple(sorted(names))

    def _viewed(self) -> defaultdict[Node, set[str]]:
        """Return, for each node, the symbols of its views, which may differ from the node's symbols."""
        found: defaultdict[Node, set[str]] = defaultdict(set)
        used = [v for s in self.plan.steps if not isinstance(s, KernelStep) for v in s.reads]
        used += _nodes(self.plan.program.outputs)
        used += [m.value for m in self.plan.program.mutations]
        for view in used:
            window = strided_view(view) if isinstance(view, View) else None
            if window is not None:
                exprs = (*view.shape, *view.layout.stride, window[1])
                found[window[0]].update(v.name for e in exprs for v in e.variables)
        return found

    def _borrow(self, symbols: tuple[str, ...]) -> list[str]:
        if not self.arena:
            return []
        names = ["block", *(f"p_{identifier(n.name)}" for n in self.arena), *self.windows.values()]
        return [f"    {', '.join(names)} = take({', '.join(symbols)})"]

    def _return(self) -> list[str]:
        return ["    give(block)"] if self.arena else []

    def _window(self, node: Node, view: View | None = None, offset: Expr = ZERO) -> str:
        """Return the tensor over an arena slot: the whole slot, or a view."""
        position = self.positions[node.name]
        layout = node.layout if view is None else view.layout
        window = Window(position, layout.shape, layout.stride, offset)
        name = f"t{len(self.windows)}_{identifier(node.name if view is None else view.name)}"
        if window not in self.windows:
            self.handles[name] = len(self.windows)
            self.windows[window] = name
        return self.windows[window]

    def line(self, text: str) -> None:
        self.lines.append(f"    {text}")

    # --- steps ----------------------------------------------------------------------------------------

    def _step(self, step: Step) -> None:
        match step:
            case KernelStep():
                self._kernel(step)
            case ExternCall():
                self._extern(step)
            case HostCall(name, target, args, kwargs):
                self.line(f"{identifier(name)} = {self._call(target, args, kwargs)}")
                self._bind_symbols({name})

    def _raise_errors(self) -> None:
        if any(isinstance(s, KernelStep) and s.kernel.checked for s in self.plan.steps):
            self.line("if error.value: raise out_of_range()")

    def _kernel(self, step: KernelStep) -> None:
        for node in step.stored:
            if node not in self.arena:
                self._allocate(node)
        kernel = step.kernel
        function = self.functions[kernel.name]
        self.arguments[function] = len(parameters(kernel))
        inside = {node.name for node in self.arena}
        values = [
            f"p_{identifier(ref.name)}" if ref.name in inside else f"{identifier(ref.name)}.data_ptr()"
            for ref in kernel.buffers
        ]
        error = ["error_address"] if kernel.checked else []
        arguments = [*values, *(identifier(s) for s in kernel.sizes), *error, "threads"]
        self.line(f"{function}({', '.join(arguments)})")

    def _allocate(self, node: Node) -> None:
        layout = node.layout
        dtype = self.constant(layout.dtype)
        self.line(
            f"{identifier(node.name)} = empty_strided({shape_text(layout.shape)}, "
            f"{shape_text(layout.stride)}, dtype={dtype})"
        )

    def _extern(self, step: ExternCall) -> None:
        out = out_variant(step)
        if out is not None:
            self._extern_out(step, out)
            return
        if self._draws(step):
            self.arguments[DRAW] = DRAW_ARGUMENTS
            text = f"bernoulli({', '.join(self.value(arg) for arg in step.args)})"
        else:
            text = self._call(step.target, step.args, step.kwargs)
        if len(step.outputs) == 1 and not step.outputs[0].path:
            self.line(f"{identifier(step.outputs[0].name)} = {text}")
            self._bind_symbols({step.outputs[0].name})
            return
        self.line(f"{identifier(step.name)} = {text}")
        for output in step.outputs:
            path = "".join(f"[{k}]" for k in output.path)
            self.line(f"{identifier(output.name)} = {identifier(step.name)}{path}")
        for name, places in step.numbers:
            path = "".join(f"[{k}]" for k in places)
            self.line(f"{identifier(name)} = {identifier(step.name)}{path}")
        self.line(f"del {identifier(step.name)}")
        self._bind_symbols({output.name for output in step.outputs})
        self._bind_symbols({name for name, _ in step.numbers})

    def _draws(self, step: ExternCall) -> bool:
        """Whether the package's ``bernoulli`` replaces ``step``."""
        return draws_bernoulli(step)

    def _extern_out(self, step: ExternCall, out: object) -> None:
        """Write a call into existing memory."""
        result = step.outputs[0]
        if result not in self.arena:
            self._allocate(result)
        kwargs = {**step.kwargs, "out": result}
        self.line(self._call(out, self.out_arguments(step), kwargs))

    def out_arguments(self, step: ExternCall) -> tuple[Any, ...]:
        """Return the arguments beside ``out=``; an addend updated in place is passed as the result itself."""
        base, result = added_to(step), step.outputs[0]
        group = self.arena[base].group if base is not None and base in self.arena else ""
        in_place = group and result in self.arena and self.arena[result].group == group
        return (result, *step.args[1:]) if in_place else step.args

    def _call(self, target: object, args: Iterable[Any], kwargs: dict[str, Any]) -> str:
        texts = [self.value(arg) for arg in args]
        texts += [f"{name}={self.value(arg)}" for name, arg in kwargs.items()]
        return f"{self.constant(self.function(target))}({', '.join(texts)})"

    def function(self, target: object) -> Any:
        """Return the callable for ``target``."""
        return target

    def _mutations(self) -> None:
        for mutation in self.plan.copies:
            target = identifier(mutation.target.name)
            self.line(f"{target}.copy_({self.value(mutation.value)})")

    # --- values ---------------------------------------------------------------------------------------

    def value(self, value: object) -> str:
        """Return the Python expression of an argument or result."""
        match value:
            case View():
                return self._view(value)
            case Node():
                return self._window(value) if value in self.arena else identifier(value.name)
            case Expr():
                return str(value)
            case HostValue(name):
                return identifier(name)
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
        if id(value) not in self.known:
            label = getattr(value, "_opname", None) or getattr(value, "__name__", None) or ""
            name = f"c{len(self.known)}_{identifier(label)}"
            self.known[id(value)] = name
            self.constants[name] = value
        return self.known[id(value)]

    def _view(self, view: View) -> str:
        found = strided_view(view)
        assert found is not None
        base, offset = found
        if base in self.arena:
            return self._window(base, view, offset)
        name = identifier(base.name)
        start = str(offset)
        if isinstance(base, (Input, Extern)):
            start = f"{name}.storage_offset()" + ("" if offset == 0 else f" + {start}")
        shape, stride = shape_text(view.shape), shape_text(view.layout.stride)
        return f"as_strided({name}, {shape}, {stride}, {start})"

    def _bind_symbols(self, available: set[str]) -> None:
        for binding in self.plan.program.bindings:
            if binding.source not in available:
                continue
            source = identifier(binding.source)
            self.symbols.add(binding.symbol)
            if binding.dim is None:
                self.line(f"{binding.symbol} = {source}")
            else:
                what = "stride" if binding.stride else "size"
                self.line(f"{binding.symbol} = {source}.{what}({binding.dim}){binding.less}")

    # --- lifetimes ------------------------------------------------------------------------------------

    def last_uses(self) -> dict[int, list[str]]:
        """Return the names to free after each step (their last use); -1 means before the first step."""
        kept = {base_of(v).name for v in _nodes(self.plan.program.outputs)}
        kept |= {base_of(m.value).name for m in self.plan.program.mutations}
        kept |= {m.target.name for m in self.plan.program.mutations}
        kept |= set(self.plan.program.constants)
        last = dict.fromkeys(self.plan.program.inputs, -1)
        for position, step in enumerate(self.plan.steps):
            for node in used(step):
                if node not in self.arena:
                    last[node.name] = position
        freed: dict[int, list[str]] = defaultdict(list)
        for name, position in last.items():
            if name not in kept:
                freed[position].append(name)
        return freed

    def _free(self, names: Iterable[str]) -> None:
        found = [identifier(name) for name in names]
        if found:
            self.line(f"del {', '.join(found)}")


def _variables(slot: Slot) -> Iterable[Var]:
    for expr in (slot.elements, *slot.layout.shape, *slot.layout.stride):
        yield from expr.variables


def _draws(step: Step) -> bool:
    """Whether ``step`` draws random numbers, whose order follows the memory layout of an argument."""
    if not isinstance(step, ExternCall) or not isinstance(step.target, torch_compat.OpOverload):
        return False
    return torch.Tag.nondeterministic_seeded in step.target.tags


def _nodes(values: Iterable[Any]) -> Iterable[Node]:
    return (value for value in values if isinstance(value, Node))


RESERVED = re.compile(
    r"(inputs|kernel_\d+|kernel_\d+_on\d+|record_.*|c\d+_.*|t\d+_.*|t_.*|p_.*|stream\d+|current_stream|on_device|aligned|raise_launch_error"
    r"|take|give|call|bernoulli|block|threads|error|error_address|out_of_range|\w*_fx)$"
)
"""Names that the host program uses for itself."""


@lru_cache(maxsize=1 << 14)  # called at each use of a node
def identifier(name: str) -> str:
    """Return a Python identifier for a node's name that cannot clash with the program's own names."""
    plain = re.sub(r"\W", "_", name)
    clashes = RESERVED.match(plain) or keyword.iskeyword(plain) or plain in HELPERS
    return f"{plain}_fx" if clashes else plain


def shape_text(shape: Iterable[Expr]) -> str:
    return f"({''.join(f'{size}, ' for size in shape)})"
