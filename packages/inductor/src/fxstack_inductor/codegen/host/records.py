"""The host program as records, which the printers write as Python or as C.

``HostSteps.records`` lists the steps in execution order; a ``SymbolBinding`` is the step that computes a
size. Names in the other records are the program's variables. The arguments of calls are ``Variable``,
``Strided``, ``Expr``, constants, and tuples, lists and dicts of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from fxstack_inductor.codegen.host.names import symbols_of
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.ir.nodes import ExternCall, Layout, Shape
from fxstack_inductor.lower.nested.calls import NestedCall
from fxstack_inductor.lower.program import HostCall, SymbolBinding
from fxstack_inductor.runtime.arena import Window
from fxstack_inductor.schedule.memory import Slot
from fxstack_inductor.schedule.steps import Plan, bodies_of
from fxstack_interchange.format.show import target_text

Kind = Literal["tensor", "integer", "object"]

# --- values -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: a tensor, or a value that the host computes."""

    name: str


@dataclass(frozen=True, slots=True)
class Strided:
    """A view of tensor ``base``. ``relative``: the storage offset of ``base`` may not be 0."""

    name: str = field(compare=False)
    """The view's name, for comments."""
    base: str
    shape: Shape
    stride: Shape
    offset: Expr
    """Elements from the start of the storage to the first element; ``relative``: plus the base's own storage offset."""
    relative: bool


def names_in(value: object) -> Iterator[str]:
    """Yield the names of the variables that the text of ``value`` reads."""
    match value:
        case Variable(name):
            yield name
        case Strided():
            yield value.base
            yield from symbols_of((*value.shape, *value.stride, value.offset))
        case Expr():
            yield from symbols_of((value,))
        case tuple() | list():
            for item in value:
                yield from names_in(item)
        case dict():
            yield from names_in(list(value.values()))


# --- steps --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restride:
    """Copy input ``name`` if its strides differ from ``stride``.

    ``mutated``: the graph writes to the input. The step then raises ValueError instead, because a copy would hide the
    writes.
    """

    name: str
    shape: Shape
    stride: Shape
    """The strides on which the program relies."""
    mutated: bool


@dataclass(frozen=True, slots=True)
class Borrow:
    """Take a block of the arena, which has an address for each slot and a tensor for each window."""


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocate the tensor ``name`` outside of the arena."""

    name: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class Buffer:
    """An argument of a kernel. ``number``: a number, not an address; ``aligned``: surely aligned memory."""

    name: str
    number: bool
    aligned: bool


@dataclass(frozen=True, slots=True)
class Launch:
    """Run ``kernel`` on ``device``. ``updated``: buffers that it writes and that may be unaligned."""

    kernel: Kernel
    buffers: tuple[Buffer, ...]
    updated: tuple[str, ...]
    device: torch.device


@dataclass(frozen=True, slots=True)
class Result:
    """A variable for the element ``path`` of a call's result.

    A tensor has the kind "tensor" only if a step, the caller or a mutation reads its memory.
    """

    name: str
    path: tuple[int, ...]
    kind: Kind
    """"tensor", "integer" (a symbol or argument), or "object": any other value, also a tensor that nothing reads."""

    @property
    def position(self) -> int:
        """The position of the element among the operator's results; 0 for an operator with one result."""
        return self.path[0] if self.path else 0


@dataclass(frozen=True, slots=True)
class Declared:
    """What the fake function of a custom operator says of the result at ``path``.

    ``shape`` is empty if it is unknown before the call (``sized``), ``stride`` if nothing relies on the strides.
    """

    path: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    sized: bool
    shape: Shape = ()
    stride: Shape = ()


@dataclass(frozen=True, slots=True)
class Call:
    """Call ``target``; ``step`` is the graph's call, which may have another target and other arguments.

    ``packed``: the variable of a result with several elements. ``out``: the tensor that the call writes;
    then there are no results. ``bindings``: symbolic sizes that the results determine. ``declared``: the
    results of a custom operator, which are checked.
    """

    step: ExternCall | HostCall
    target: Any
    args: tuple[Any, ...]
    """Arguments in terms of the program's variables."""
    kwargs: dict[str, Any]
    results: tuple[Result, ...] = ()
    """The variables that the call sets; empty with ``out``."""
    packed: str = ""
    out: Variable | None = None
    bindings: tuple[SymbolBinding, ...] = ()
    declared: tuple[Declared, ...] = ()

    @property
    def reads(self) -> list[str]:
        """The names of the variables that the call reads."""
        sizes = [size for result in self.declared for size in (*result.shape, *result.stride)]
        return list(dict.fromkeys(names_in((self.args, self.kwargs, self.out, sizes))))

    @property
    def sets(self) -> dict[str, Kind]:
        """The variables that the call sets, with their kinds."""
        sizes: dict[str, Kind] = {binding.symbol: "integer" for binding in self.bindings}
        return {result.name: result.kind for result in self.results} | sizes


@dataclass(frozen=True, slots=True)
class Nested:
    """A loop or branch over functions of the program (``lower.nested.calls.Form``), whose results have memory.

    ``arguments``: the arguments of the operator, for Python. ``operands``: carried, sliced and shared operands.
    ``symbols``: for each function, the values of the symbols that its operands determine.
    """

    step: NestedCall
    arguments: tuple[Any, ...]
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    """The tensors for which the program provides memory, in the order of ``NestedCall.written``: results, then scratch.

    Results that operators of ATen make are not among them.
    """
    predicate: Any
    length: Expr
    """The number of iterations of a scan; 0 for other kinds."""
    symbols: tuple[tuple[Expr, ...], ...]

    @property
    def reads(self) -> list[str]:
        """The names of the variables that the step reads."""
        values = (self.operands, self.predicate, self.results, self.length, self.symbols)
        return list(dict.fromkeys(names_in(values)))


@dataclass(frozen=True, slots=True)
class Check:
    """Convert tensor ``name``, if it differs from the plan. A layout with unknown sizes is None."""

    name: str
    dtype: torch.dtype
    layout: Layout | None
    """The planned layout; None if strides do not matter or sizes are unknown yet."""


@dataclass(frozen=True, slots=True)
class Free:
    """Drop the variables ``names``, so that tensors without other references are freed."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Empty:
    """Empty the list of arguments of a boxed program; before, the program can run again with them."""


@dataclass(frozen=True, slots=True)
class RaiseErrors:
    """Raise the error of a kernel or launch, if there was one."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy ``value`` into tensor ``target``."""

    target: str
    value: Any


@dataclass(frozen=True, slots=True)
class Return:
    """Give the block of the arena back, and return ``values``."""

    values: tuple[Any, ...]


Record = (
    SymbolBinding
    | Restride
    | Borrow
    | Allocate
    | Launch
    | Call
    | Nested
    | Check
    | Free
    | Empty
    | RaiseErrors
    | Copy
    | Return
)


@dataclass(frozen=True)
class HostSteps:
    """The steps of a plan; ``symbols`` are the sizes on which the arena's slots and windows depend."""

    plan: Plan
    records: tuple[Record, ...]
    slots: dict[str, Slot]
    """Places in the arena, by the variable of the tensor."""
    windows: dict[Window, str]
    """Variables of tensors over slots."""
    symbols: tuple[str, ...]


def show_steps(steps: HostSteps) -> str:
    """Return the slots of the arena and the records as text."""
    lines = [
        f"slot {slot.group or name}: {name}, {slot.elements} elements, steps {slot.first} to {slot.last}"
        for name, slot in steps.slots.items()
    ]
    return "\n".join([*lines, *map(_show_record, steps.records)]) + "\n"


def _show_record(record: Record) -> str:
    """Return one step as a line of text."""
    match record:
        case SymbolBinding():
            return f"{record.symbol} = {record.python(record.source)}"
        case Restride(name):
            return f"copy {name} if its strides are not {_listed(record.stride)}"
        case Borrow():
            return "borrow the block of the slots"
        case Allocate(name):
            return f"allocate {name}"
        case Launch():
            return f"launch {record.kernel.name}({_listed(buffer.name for buffer in record.buffers)})"
        case Call():
            results = record.out.name if record.out is not None else _listed(record.sets)
            return f"{results} = {target_text(record.step.target)}({_listed(record.reads)})"
        case Nested(step):
            functions = ", ".join(body.name for body in bodies_of(step))
            return f"{step.form.kind} {functions} of {_listed(record.reads)}"
        case Check(name):
            return f"check {name}"
        case Free(names):
            return f"free {_listed(names)}"
        case Empty():
            return "empty the list of arguments"
        case RaiseErrors():
            return "raise the error of a kernel"
        case Copy(target, value):
            return f"copy {_listed(names_in(value))} into {target}"
        case Return(values):
            return f"return {_listed(names_in(values))}"


def _listed(values: Iterable[object]) -> str:
    """Return ``values`` as text, separated by commas."""
    return ", ".join(map(str, values))
