"""Build the records of a host program from the schedule: choose memory, lifetimes and checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.codegen.host import records
from fxstack_inductor.codegen.host.names import identifier
from fxstack_inductor.ir.expr import ZERO, Expr, as_expr
from fxstack_inductor.ir.nodes import Argument, Computed, Extern, ExternCall, Input, Node, View
from fxstack_inductor.lower.layouts import strided_view
from fxstack_inductor.lower.nested.calls import Form, NestedCall
from fxstack_inductor.lower.nested.graphs import nested_graphs, operator_name
from fxstack_inductor.lower.program import HostCall, HostValue, SymbolBinding
from fxstack_inductor.runtime.arena import Window
from fxstack_inductor.schedule.fusion.inlining import base_of
from fxstack_inductor.schedule.memory import Slot, added_to, slots, used
from fxstack_inductor.schedule.outvariants import draws_bernoulli, out_variant
from fxstack_inductor.schedule.steps import (
    Body,
    KernelStep,
    Plan,
    Step,
    all_kernels,
    bodies_of,
    called_graphs,
)
from fxstack_interchange.operators.custom_operators import custom_operator

BERNOULLI = records.Variable("bernoulli")
"""The target of calls that ``runtime.dropout.bernoulli`` replaces."""


def host_steps(plan: Plan, *, device: bool = False, draws: bool = True) -> records.HostSteps:
    """Return the records of the host program for ``plan``; the pass ``plan_host`` of a target calls this.

    ``device``: the program is for a GPU and has no arena. ``draws``: ``runtime.dropout`` is linked.
    """
    return Builder(plan, device, draws and not device).run()


def body_steps(body: Body) -> records.HostSteps:
    """Return the records of a function that an operator calls."""
    return Builder(body.plan, device=False, draws=True, is_body=True).run()


@dataclass
class Builder:
    """Builds the records of one host program, for ``host_steps``."""

    plan: Plan
    device: bool
    """Whether the program is for a GPU; it then has no arena."""
    draws: bool
    """Whether ``runtime.dropout`` draws the random bits of dropout."""
    is_body: bool = False
    """Whether the records are those of a function, whose results may lie within other tensors."""
    steps: list[records.Record] = field(default_factory=list)
    """The records so far."""
    arena: dict[Node, Slot] = field(default_factory=dict)
    """The tensors in the arena, with the place that each has there."""
    positions: dict[Node, int] = field(default_factory=dict)
    """Positions of the nodes in ``arena``, for ``Window``."""
    windows: dict[Window, str] = field(default_factory=dict)
    """Names of the program's tensors over arena slots."""
    symbols: set[str] = field(default_factory=set)
    """Symbolic sizes that have been bound so far."""

    def run(self) -> records.HostSteps:
        """Return the steps: bind sizes, check strides, borrow the arena, run the plan's steps, copy, return."""
        program = self.plan.program
        symbols = () if self.device else self._plan_arena()
        self.steps += self._bindings({*program.parameters, *program.constants})
        self._restrides()
        steps = enumerate(self.plan.steps, 1)
        checks = max((k for k, s in steps if isinstance(s, KernelStep) and s.kernel.only_checks), default=0)
        late = self.device or any(k.checked and not k.only_checks for k in all_kernels(self.plan))
        # The functions that operators call may check indices, too.
        again = not self.device and (late or bool(called_graphs(self.plan)))
        empty = [records.Empty()] if self.plan.boxed else []
        self.steps += [] if checks or again else empty
        if self.arena:
            self.steps.append(records.Borrow())
        last = self._last_uses()
        self._free(last[-1])
        for position, step in enumerate(self.plan.steps):
            if checks and position == checks:
                self.steps += [records.RaiseErrors(), *([] if again else empty)]
            if isinstance(step, KernelStep):
                self._launch(step)
            elif isinstance(step, NestedCall):
                self._nested(step)
            elif isinstance(step, ExternCall):
                self._extern(step)
                self._check_results(step)
            else:
                self._host_call(step)
            self._free(last[position])
        if late and all_kernels(self.plan):
            self.steps.append(records.RaiseErrors())
        self.steps += empty if again else []
        self.steps += [
            records.Copy(identifier(m.target.name), self._value(m.value)) for m in self.plan.copies
        ]
        self.steps.append(records.Return(self._values(program.outputs)))
        slots = {identifier(node.name): slot for node, slot in self.arena.items()}
        return records.HostSteps(self.plan, tuple(self.steps), slots, self.windows, symbols)

    # --- what the steps read ----------------------------------------------------------------------------

    @cached_property
    def _outputs(self) -> list[Node]:
        """The results of the program that are tensors."""
        return [value for value in self.plan.program.outputs if isinstance(value, Node)]

    @cached_property
    def _call_reads(self) -> list[Node]:
        """The tensors and views that calls read."""
        return [v for s in self.plan.steps if not isinstance(s, KernelStep) for v in s.reads]

    @cached_property
    def _viewed(self) -> set[Node]:
        """The tensors of which a call or the program's caller gets a view."""
        return {base_of(v) for v in (*self._call_reads, *self._outputs) if isinstance(v, View)}

    @cached_property
    def _needed(self) -> set[Node]:
        """The tensors whose memory a step, the caller or a mutation reads; results of other calls are released."""
        needed = {n for step in self.plan.steps for n in map(base_of, step.reads)}
        needed |= {base_of(value) for value in self._outputs}
        return needed | {base_of(m.value) for m in self.plan.program.mutations}

    @cached_property
    def _relied(self) -> set[Node]:
        """Results of ATen calls whose strides matter to kernels, views, or the order of random numbers."""
        steps = self.plan.steps
        read = {n for s in steps if isinstance(s, KernelStep) or _is_random(s) for n in s.reads}
        # A nested graph, and the caller of a result of nested graphs, rely on the strides of the trace.
        nested = [s for s in steps if isinstance(s, ExternCall) and _has_functions(s)]
        read |= {n for s in nested for n in (*s.reads, *s.outputs)}
        read |= set(self._outputs if self.is_body else ())
        return read | self._viewed

    def _restrides(self) -> None:
        """Check input strides, on which kernels rely; an input with other strides is copied."""
        program = self.plan.program
        mutated = {m.target for m in program.mutations}
        kinds = (KernelStep, NestedCall)
        read = {n for s in self.plan.steps if isinstance(s, kinds) for n in s.reads} | self._viewed
        for name in program.parameters:
            node = program.inputs.get(name)
            if node is not None and node in read:
                record = records.Restride(identifier(name), node.shape, node.layout.stride, node in mutated)
                self.steps.append(record)

    def _check_results(self, step: ExternCall) -> None:
        """Check the results of operators: kernels rely on the graph's dtypes, shapes and strides."""
        if out_variant(step) is not None or custom_operator(step.target):
            return
        for output in step.outputs:
            if output in self._needed and output.strided and not isinstance(output, Argument):
                layout = output.layout if output in self._relied and self._knows(output) else None
                self.steps.append(records.Check(identifier(output.name), output.dtype, layout))

    def _knows(self, node: Node) -> bool:
        """Return whether the program has bound all symbols in the shape and strides of ``node``.

        Only then can the program check them now.
        """
        variables = (v for e in (*node.shape, *node.layout.stride) for v in e.variables)
        return all(v.name in self.symbols for v in variables)

    # --- memory -----------------------------------------------------------------------------------------

    def _plan_arena(self) -> tuple[str, ...]:
        """Choose the slots whose sizes are known when the call starts; return the symbols in the sizes."""
        program = self.plan.program
        early = set(program.parameters) | set(program.constants)
        known_symbols = {b.symbol for b in program.bindings if b.source in early}
        viewed = self._view_symbols()
        names: set[str] = set()
        for node, slot in slots(self.plan).items():
            seen = viewed[node]
            if {v.name for v in slot.elements.variables} | seen <= known_symbols:
                self.positions[node] = len(self.arena)
                self.arena[node] = slot
                sizes = (slot.elements, *slot.layout.shape, *slot.layout.stride)
                names |= seen.union(v.name for size in sizes for v in size.variables)
        return tuple(sorted(names))

    def _view_symbols(self) -> defaultdict[Node, set[str]]:
        """Return, for each base tensor, the symbols in the layouts of its views: the arena must know these too."""
        symbols: defaultdict[Node, set[str]] = defaultdict(set)
        copied = [m.value for m in self.plan.program.mutations]
        for view in (*self._call_reads, *self._outputs, *copied):
            window = strided_view(view) if isinstance(view, View) else None
            if window is not None:
                exprs = (*view.shape, *view.layout.stride, window[1])
                symbols[window[0]].update(v.name for e in exprs for v in e.variables)
        return symbols

    def _allocate(self, node: Node) -> None:
        """Add the allocation of ``node``, unless the arena has memory for it."""
        if node not in self.arena:
            self.steps.append(records.Allocate(identifier(node.name), node.layout))

    def _last_uses(self) -> defaultdict[int, list[str]]:
        """Return the names to free after each step, by the step's position; -1 is the time before the first step."""
        program = self.plan.program
        never_freed = {base_of(v).name for v in (*self._outputs, *(m.value for m in program.mutations))}
        never_freed |= {m.target.name for m in program.mutations}
        never_freed |= set(program.constants)
        last = dict.fromkeys(program.inputs, -1)
        for position, step in enumerate(self.plan.steps):
            for node in used(step):
                if node not in self.arena:
                    last[node.name] = position
        freed: defaultdict[int, list[str]] = defaultdict(list)
        for name, position in last.items():
            if name not in never_freed:
                freed[position].append(identifier(name))
        return freed

    def _free(self, names: list[str]) -> None:
        """Add the release of variables after their last use."""
        if names:
            self.steps.append(records.Free(tuple(names)))

    # --- steps ------------------------------------------------------------------------------------------

    def _launch(self, step: KernelStep) -> None:
        """Add the launch of a kernel, after the allocation of the tensors that it stores."""
        for node in step.stored:
            self._allocate(node)
        kernel = step.kernel
        nodes = {node.name: node for node in (*step.stored, *step.reads)}
        buffers = tuple(
            records.Buffer(identifier(ref.name), isinstance(node, Argument), isinstance(node, Computed))
            for ref in kernel.buffers
            for node in (nodes[ref.name],)
        )
        changed = [node for node in step.reads if node.name in kernel.written]
        updated = tuple(identifier(node.name) for node in changed if not isinstance(node, Computed))
        # A scatter stores nothing new; it writes to a tensor that it also reads.
        device = next((node.device for node in (*step.stored, *changed)), torch.device("cpu"))
        self.steps.append(records.Launch(kernel, buffers, updated, device))

    def _host_call(self, step: HostCall) -> None:
        """Add a call that computes a number, and bind the sizes that its result determines."""
        bindings = self._bindings({step.name})
        results = (self._result(step.name),)
        args, kwargs = self._values(step.args), self._value(step.kwargs)
        self.steps.append(records.Call(step, step.target, args, kwargs, results, bindings=bindings))

    def _extern(self, step: ExternCall) -> None:
        """Add an ATen call: with ``out=`` into planned memory where ATen has an ``out=`` overload."""
        out = out_variant(step)
        if out is not None:
            self._allocate(step.outputs[0])
            result = self._value(step.outputs[0])
            args, kwargs = self._values(self._out_arguments(step)), self._value(step.kwargs)
            self.steps.append(records.Call(step, out, args, kwargs, out=result))
            return
        target = self._target(step)
        args, kwargs = self._values(step.args), self._value(step.kwargs)
        declared = tuple(map(self._declared, step.outputs)) if custom_operator(step.target) else ()
        bindings = self._bindings({output.name for output in step.outputs})
        results = tuple(self._result(o.name, o.path, o) for o in step.outputs)
        packed = ""
        if len(results) != 1 or results[0].path:
            packed = identifier(step.name)
            bindings += self._bindings({name for name, _ in step.numbers})
            results += tuple(self._result(name, path) for name, path in step.numbers)
        call = records.Call(step, target, args, kwargs, results, packed, None, bindings, declared)
        self.steps.append(call)

    def _target(self, step: ExternCall) -> Any:
        """Return what the program calls: the operator, or a function of this package that computes the same."""
        if self.draws and draws_bernoulli(step):
            return BERNOULLI
        name = operator_name(step.target) if any(nested_graphs(step.args)) else None
        return step.target if name is None else records.Variable(f"run_{name}")

    def _nested(self, step: NestedCall) -> None:
        """Add a loop or branch, after the allocation of the tensors that it writes."""
        for node in step.written:
            self._allocate(node)
        form = step.form
        sliced = form.sliced
        length = sliced[0].shape[0] if sliced else ZERO
        record = records.Nested(
            step,
            self._values(form.arguments),
            self._values(form.operands),
            self._values(step.written),
            self._value(form.predicate),
            length,
            tuple(tuple(self._given(form, body, b) for b in body.bindings) for body in bodies_of(step)),
        )
        self.steps.append(record)

    @staticmethod
    def _given(form: Form, body: Body, binding: SymbolBinding) -> Expr:
        """Return the value of a symbol that the operands of a function determine."""
        position = body.plan.program.parameters.index(binding.source)
        operand = form.operands[position]
        if binding.dim is None:
            return as_expr(operand)
        first = len(form.carried)
        dim = binding.dim + (first <= position < first + len(form.sliced))
        sizes = operand.layout.stride if binding.stride else operand.shape
        return as_expr(sizes[dim] - binding.rest)

    def _declared(self, output: Extern) -> records.Declared:
        """Return what the program checks of a custom operator's result."""
        layout = output.layout
        sized = output.strided and self._knows(output)
        shape = output.shape if sized else ()
        stride = layout.stride if sized and output in self._relied else ()
        return records.Declared(output.path, layout.dtype, layout.device, sized, shape, stride)

    def _result(self, name: str, path: tuple[int, ...] = (), node: Extern | None = None) -> records.Result:
        """Return the variable of a call's result; results that nothing reads have kind "object"."""
        if isinstance(node, Argument) or name in self._symbols:
            return records.Result(identifier(name), path, "integer")
        return records.Result(identifier(name), path, "tensor" if node in self._needed else "object")

    @cached_property
    def _symbols(self) -> set[str]:
        """Names of all symbols that the program binds."""
        return {binding.symbol for binding in self.plan.program.bindings}

    def _out_arguments(self, step: ExternCall) -> tuple[Any, ...]:
        """Return the arguments beside ``out=``; an addend updated in place is passed as the result itself."""
        base, result = added_to(step), step.outputs[0]
        group = self.arena[base].group if base is not None and base in self.arena else ""
        in_place = group and result in self.arena and self.arena[result].group == group
        return (result, *step.args[1:]) if in_place else step.args

    def _bindings(self, available: set[str]) -> tuple[SymbolBinding, ...]:
        """Return the bindings of symbols whose sources are ``available`` now, and record that they are bound."""
        bindings = tuple(b for b in self.plan.program.bindings if b.source in available)
        self.symbols |= {b.symbol for b in bindings}
        return bindings

    # --- values -----------------------------------------------------------------------------------------

    def _values(self, values: Iterable[object]) -> tuple[Any, ...]:
        """Return arguments or results in terms of the program's variables."""
        return tuple(map(self._value, values))

    def _value(self, value: object) -> Any:
        """Return an argument or result in terms of the program's variables: a record in place of a node."""
        match value:
            case View():
                return self._view(value)
            case Node():
                return (
                    self._window(value, value)
                    if value in self.arena
                    else records.Variable(identifier(value.name))
                )
            case HostValue(name):
                return records.Variable(identifier(name))
            case tuple():
                return self._values(value)
            case list():
                return list(self._values(value))
            case dict():
                return {key: self._value(item) for key, item in value.items()}
            case _:
                return value

    def _view(self, view: View) -> records.Variable | records.Strided:
        """Return a view as a window of the arena if its base is there, else as a strided view of the base."""
        window = strided_view(view)
        assert window is not None
        base, offset = window
        if base in self.arena:
            return self._window(base, view, offset)
        name, relative = identifier(base.name), self.is_body or isinstance(base, (Input, Extern))
        return records.Strided(view.name, name, view.shape, view.layout.stride, offset, relative)

    def _window(self, base: Node, node: Node, offset: Expr = ZERO) -> records.Variable:
        """Return the tensor ``node`` over the arena slot of ``base``."""
        window = Window(self.positions[base], node.shape, node.layout.stride, offset)
        name = f"t{len(self.windows)}_{identifier(node.name)}"
        return records.Variable(self.windows.setdefault(window, name))


def _has_functions(step: ExternCall) -> bool:
    """Whether ``step`` calls functions of the graph."""
    return isinstance(step, NestedCall) or any(nested_graphs(step.args))


def _is_random(step: Step) -> bool:
    """Whether ``step`` draws random numbers, whose order follows the memory layout of an argument."""
    if not isinstance(step, ExternCall) or not isinstance(step.target, torch_compat.OpOverload):
        return False
    return torch.Tag.nondeterministic_seeded in step.target.tags
