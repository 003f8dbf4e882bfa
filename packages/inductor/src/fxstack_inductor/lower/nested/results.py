"""The results of a function that an operator calls: tensors that it writes into given memory, makes, or only names.

A loop or branch provides the memory of all results. A function that is called once may also return a tensor that an
operator of ATen makes; and of a result that shares memory with an operand or with another result, only the description
is returned, as eager returns a view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import (
    Computed,
    Extern,
    ExternCall,
    Input,
    Layout,
    Node,
    Pointwise,
    Read,
    View,
    resolve,
)
from fxstack_inductor.lower.layouts import strided_view
from fxstack_inductor.lower.program import Program


@dataclass(frozen=True, slots=True)
class Source:
    """A result of the operator: the tensor ``base``, seen at ``coords`` (None: the tensor itself).

    ``base`` counts the operands, then the results of the function.
    """

    base: int
    coords: tuple[Expr, ...] | None = None


@dataclass(slots=True)
class Results:
    """The results of a function."""

    nodes: list[Node] = field(default_factory=list)
    """The tensors that it writes or makes."""
    made: set[int] = field(default_factory=set)
    """Positions in ``nodes`` of tensors that operators of ATen make."""
    positions: list[int] = field(default_factory=list)
    """For each node, a result of the operator that is the node, or all of its elements in the same memory."""
    sources: list[Source | None] = field(default_factory=list)
    """The results of the operator; None for a result that is None."""
    copies: list[Pointwise] = field(default_factory=list)
    """Nodes that copy a result into its memory."""


def results_of(
    program: Program,
    layouts: Sequence[Layout | None],
    writes: Callable[[ExternCall], bool],
    *,
    exclusive: bool,
) -> Results | None:
    """Return the results of the function ``program``, with the layouts of the operator's results.

    ``writes`` says whether a call writes its results into given memory. ``exclusive``: each result has memory of its own,
    which the caller provides. None if a result is a number, or has another shape or dtype than ``layouts`` say.
    """
    if len(program.outputs) != len(layouts):
        return None
    finder = _Finder(program, writes, exclusive)
    for output, layout in zip(program.outputs, layouts, strict=True):
        if layout is None:
            finder.found.sources.append(None)
        elif not isinstance(output, Node) or (output.shape, output.dtype) != (layout.shape, layout.dtype):
            return None
        else:
            finder.found.sources.append(finder.source(output, layout))
    return finder.found


@dataclass
class _Finder:
    """Finds the results of one function."""

    program: Program
    writes: Callable[[ExternCall], bool]
    exclusive: bool
    found: Results = field(default_factory=Results)

    def source(self, output: Node, layout: Layout) -> Source:
        """Return the source of a result of the operator with this ``layout``."""
        shared = None if self.exclusive else self._shared(output, layout)
        if shared is not None:
            return shared
        fresh = self._position(output) is None and self._is_written(output)
        if fresh and is_same(layout.shape, output.layout.stride, layout.stride):
            return self._add(output)
        self.found.copies.append(copy_of(output, layout, f"{output.name}_result{len(self.found.copies)}"))
        return self._add(self.found.copies[-1])

    def _shared(self, output: Node, layout: Layout) -> Source | None:
        """Return the source of a result that an operator makes, or that shares memory; None for other results."""
        base, coords = resolve(output, output.index) if isinstance(output, View) else (output, None)
        if not is_same(layout.shape, output.layout.stride, layout.stride) or isinstance(base, View):
            return None
        position = self._position(base)
        if position is None and (coords is None or _covers(output, base)):
            if isinstance(base, Extern) and base.strided and not self.writes(base.call):
                self.found.made.add(len(self.found.nodes))
                position = self._add(base).base
            elif coords is not None and self._is_written(base):
                position = self._add(base).base
        if position is None:
            return None
        if coords is None:
            return Source(position)
        plain = tuple(coord for coord in coords if isinstance(coord, Expr))
        return Source(position, plain) if len(plain) == len(coords) else None

    def _is_written(self, node: Node) -> bool:
        """Whether the steps of the function write ``node`` into memory that the caller may provide."""
        return isinstance(node, Computed) or (isinstance(node, Extern) and self.writes(node.call))

    def _position(self, node: Node) -> int | None:
        """Return the position of an operand or of a result so far; None for other tensors."""
        parameters = self.program.parameters
        if isinstance(node, Input):
            return parameters.index(node.name) if node.name in parameters else None
        found = (k for k, result in enumerate(self.found.nodes) if result is node)
        return next((len(parameters) + k for k in found), None)

    def _add(self, node: Node) -> Source:
        """Return the source of a new result; the next result of the operator is the node, or has all of its elements."""
        self.found.positions.append(len(self.found.sources))
        self.found.nodes.append(node)
        return Source(len(self.program.parameters) + len(self.found.nodes) - 1)


def _covers(view: Node, base: Node) -> bool:
    """Whether ``view`` has all elements of ``base``, from its first element on."""
    window = strided_view(view) if isinstance(view, View) else None
    return window is not None and window[1] == 0 and view.layout.numel == base.layout.numel


def copy_of(node: Node, layout: Layout, name: str) -> Pointwise:
    """Return the copy of ``node`` in memory of its own."""
    base, coords = resolve(node, node.index)
    body = Read(base, coords)
    return Pointwise(name=name, layout=layout, origin=node.origin, comment=node.comment, body=body)


def is_same(shape: Sequence[Expr], strides: Sequence[Expr], others: Sequence[Expr]) -> bool:
    """Whether two tensors have equal strides in all dimensions of more than one element."""
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, others, strict=True))
