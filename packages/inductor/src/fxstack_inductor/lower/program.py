"""The result of lowering a graph: tensor-level IR, with the graph's inputs, outputs and mutations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import ExternCall, Input, Node, View
from fxstack_inductor.ir.printer import show_tensor
from fxstack_interchange.format.show import target_text


@dataclass(frozen=True, slots=True)
class HostValue:
    """A value that the host computes under ``name``; the value is neither a tensor nor a size expression."""

    name: str


@dataclass(frozen=True, slots=True)
class HostCall:
    """A Python call that the host makes between kernels: ``name = target(*args, **kwargs)``."""

    name: str
    target: Any
    """A Python function or operator that returns a number."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reads: tuple[Node, ...] = ()
    """Tensors among the arguments, which must be computed before the call."""


@dataclass(frozen=True, slots=True)
class SymbolBinding:
    """The source of a size symbol: size (or stride) ``dim`` of input ``source``, or this input's value.

    The symbol is the source's value minus ``rest``.
    """

    symbol: str
    """The name of the symbol."""
    source: str
    dim: int | None = None
    """The dimension; None if the source is the number itself."""
    stride: bool = False
    """Whether the symbol is a stride, not a size."""
    rest: int = 0

    @property
    def less(self) -> str:
        """Return the text after the size, in Python and in C, for example `` - (1)``: the subtraction of ``rest``."""
        return f" - ({self.rest})" if self.rest else ""

    def python(self, source: str) -> str:
        """Return the Python expression of the symbol; ``source`` is the text of the input."""
        if self.dim is None:
            return source
        return f"{source}.{'stride' if self.stride else 'size'}({self.dim}){self.less}"


@dataclass(frozen=True, slots=True)
class Mutation:
    """A write to an input: ``target`` receives the elements of ``value`` after all other nodes have read ``target``."""

    target: Input
    value: Node


@dataclass(frozen=True, slots=True)
class Fallback:
    """An operator with a rule that ATen runs nevertheless.

    ``defect``: whether the rule raised an unexpected error. Otherwise the rule declined the call, or could not apply.
    """

    node: str
    """The name of the FX node."""
    target: str
    """The operator as text, for example ``aten.sort.default``."""
    reason: str
    """A phrase, for reports."""
    defect: bool = False


@dataclass
class Program:
    """The tensor-level IR of one graph: the result of ``lower_graph``, which ``schedule.plan`` orders into kernels and calls."""

    parameters: list[str] = field(default_factory=list)
    """Names of the graph's inputs, in order."""
    inputs: dict[str, Input] = field(default_factory=dict)
    """Tensor inputs and constants, by name."""
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    """Tensors that are attributes of the graph's module, by the name of their input."""
    bindings: list[SymbolBinding] = field(default_factory=list)
    """Sources of the size symbols; the host reads them before the first kernel."""
    steps: list[Node | ExternCall | HostCall] = field(default_factory=list)
    """Computed nodes, ATen calls and host calls, in the graph's order."""
    outputs: list[Node | Expr | HostValue | Any] = field(default_factory=list)
    """The results, in order; a size is an ``Expr``, a constant stays as it is."""
    mutations: list[Mutation] = field(default_factory=list)
    """Inputs that the graph changes, with their new values."""
    many_threads: bool = False
    """Whether the kernels are for a GPU, where a launch costs more than a small kernel."""
    fallbacks: list[Fallback] = field(default_factory=list)
    """The operators that stay ATen calls although they have rules."""


def show_program(program: Program) -> str:
    """Return the program as text: inputs, steps in the graph's order, new values of inputs, outputs."""
    lines = [f"def program({', '.join(program.parameters)}):"]
    lines += [f"    {show_tensor(node)}" for node in program.inputs.values()]
    lines += [
        f"    {show_tensor(step) if isinstance(step, Node) else show_call(step)}" for step in program.steps
    ]
    lines += [f"    {mutation.target.name} <- {_value(mutation.value)}" for mutation in program.mutations]
    lines.append(f"    return {', '.join(map(_value, program.outputs))}")
    lines += [f"# {fallback.target} stays an ATen call: {fallback.reason}" for fallback in program.fallbacks]
    return "\n".join(lines) + "\n"


def show_call(step: ExternCall | HostCall) -> str:
    """Return a call with the tensors that it reads."""
    outputs = [node.name for node in step.outputs] if isinstance(step, ExternCall) else [step.name]
    return f"{', '.join(outputs)} = {target_text(step.target)}({', '.join(map(_value, step.reads))})"


def _value(value: object) -> str:
    """Return a value as text: the name of a tensor or host value, a view in full."""
    if isinstance(value, View):
        return show_tensor(value)
    return value.name if isinstance(value, Node | HostValue) else str(value)
