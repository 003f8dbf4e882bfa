"""Lower ``associative_scan`` to scans by a function of single elements.

The function is lowered by the ordinary rules on slices of the scanned tensors. A result at some coordinates must read the
operands at the same coordinates only. Parts of the function that read no operand, such as elements of other tensors, are
scanned beside the operands: they are equal at all positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule

from fxstack_inductor.errors import NotLowered
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.kernel import Combine, Compute, Constant
from fxstack_inductor.ir.nodes import (
    Body,
    Call,
    Const,
    Coord,
    Index,
    Indirect,
    Masked,
    Node,
    Pointwise,
    Read,
    View,
    children,
    resolve,
    substituted,
    substitution,
    value_dtype,
    walk,
)
from fxstack_inductor.lower.context import Context, read
from fxstack_inductor.lower.graph import lower_graph
from fxstack_inductor.lower.program import Program

OPERAND = "operand"
"""A call that stands for an operand of the function, by its number."""

Rules = Mapping[Any, Callable[..., Any]]


def scan_rules(graph_module: GraphModule, rules: Rules) -> dict[str, Callable[..., Any]]:
    """Return the rules for the calls of ``associative_scan`` by node name; ``rules`` lower the functions."""
    operator = torch.ops.higher_order.associative_scan
    nodes = graph_module.graph.find_nodes(op="call_function", target=operator)
    return {node.name: _rule(rules) for node in nodes}


def _rule(rules: Rules) -> Callable[..., tuple[Node, ...]]:
    """Return the lowering rule of ``associative_scan``."""

    def rule(
        ctx: Context, function: object, xs: Sequence[Node], further: Sequence[Node | Expr]
    ) -> tuple[Node, ...]:
        """Lower the operator: each result is one part of the same scan along the first dimension."""
        if not isinstance(function, GraphModule) or any(x.shape != xs[0].shape for x in xs):
            raise NotLowered("a scan of tensors of different shapes, or by a function that is no graph")
        program = lower_graph(function, rules, ctx.options, ctx.target)
        outputs = _element_outputs(program, xs)
        names = program.parameters
        operands: dict[Node, int] = {program.inputs[name]: k for k, name in enumerate(names[: 2 * len(xs)])}
        others: dict[Node, Node] = {
            program.inputs[name]: value
            for name, value in zip(names[2 * len(xs) :], further, strict=True)
            if isinstance(value, Node)
        }
        made = Pointwise(name="", layout=xs[0].layout, body=Const(0, torch.int64))
        elements = _Elements(operands, others, made.index[1:])
        results = [elements.of(node, elements.index) for node in outputs]
        combined = _Combined(results, len(xs))

        def body(coords: Sequence[Expr]) -> Body:
            values = (*(read(x, coords) for x in xs), *combined.constants)
            return Call("tuple", values, values[0].dtype)

        return tuple(
            ctx.scan(
                "combine",
                x.shape,
                0,
                x.dtype,
                body,
                state=value_dtype(x.dtype),
                combine=combined.function,
                part=part,
            )
            for part, x in enumerate(xs)
        )

    return rule


def _element_outputs(program: Program, xs: Sequence[Node]) -> list[Node]:
    """Return the results of the function.

    Raises:
        NotLowered: the results are not like slices of ``xs``, or need reductions or calls.
    """
    for step in program.steps:
        if not isinstance(step, (Pointwise, View)):
            raise NotLowered(f"a scan by a function that needs {step.name}")
    results = [node for node in program.outputs if isinstance(node, Node)]
    if len(results) != len(xs):
        raise NotLowered("a scan by a function of another number of results")
    if any(node.dtype != x.dtype or node.shape != x.shape[1:] for node, x in zip(results, xs, strict=True)):
        raise NotLowered("a scan by a function whose results are not like its operands")
    return results


@dataclass
class _Elements:
    """Expressions of the function's elements at ``index``, in terms of its ``operands`` and of ``others``."""

    operands: Mapping[Node, int]
    """Position among the left and the right operands."""
    others: Mapping[Node, Node]
    """Further inputs of the function, with the tensors outside of it."""
    index: tuple[Expr, ...]
    made: dict[tuple[Node, tuple[Coord, ...]], Body] = field(default_factory=dict)

    def of(self, node: Node, coords: Sequence[Coord]) -> Body:
        """Return an element."""
        base, at = resolve(node, coords)
        key = (base, at)
        if key not in self.made:
            self.made[key] = self._of(base, at)
        return self.made[key]

    def _of(self, base: Node, at: tuple[Coord, ...]) -> Body:
        if base in self.operands:
            if at != self.index:
                raise NotLowered("a scan by a function that reads other elements of its operands")
            number = Const(self.operands[base], torch.int64)
            return Call(OPERAND, (number,), value_dtype(base.dtype))
        if base in self.others:
            return read(self.others[base], at)
        if not isinstance(base, Pointwise) or any(isinstance(coord, Indirect) for coord in at):
            raise NotLowered(f"a scan by a function that looks up elements of {base.name}")
        places = {
            var: coord for var, coord in substitution(base.index, at).items() if isinstance(coord, Expr)
        }
        return self._expanded(substituted(base.body, places))

    def _expanded(self, body: Body) -> Body:
        """Return ``body`` with the elements that it reads expanded."""
        match body:
            case Call(op, args, dtype):
                return Call(op, tuple(map(self._expanded, args)), dtype)
            case Masked(mask, inner, other):
                return Masked(self._expanded(mask), self._expanded(inner), other)
            case Read(node, coords):
                return self.of(
                    node,
                    [
                        replace(c, body=self._expanded(c.body)) if isinstance(c, Indirect) else c
                        for c in coords
                    ],
                )
            case Const() | Index():
                return body


class _Combined:
    """The function as values of the loop IR. ``constants``: the expressions without operands, which are scanned, too."""

    def __init__(self, results: Sequence[Body], count: int) -> None:
        parts = (part for result in results for part in _without_operands(result))
        self.constants = tuple(dict.fromkeys(parts))
        total = count + len(self.constants)
        self._places = {part: total + count + k for k, part in enumerate(self.constants)}
        self._operands: tuple[int, ...] = (*range(count), *range(total, total + count))
        self._first = 2 * total
        self._values: dict[Constant | Compute, int] = {}
        self._positions: dict[int, int] = {}
        """By the identity of a part of ``results``."""
        positions = [self._position(result) for result in results]
        self.function = Combine(tuple(self._values), (*positions, *self._places.values()))

    def _position(self, body: Body) -> int:
        """Return the position of the value of ``body``."""
        if id(body) not in self._positions:
            self._positions[id(body)] = self._evaluated(body)
        return self._positions[id(body)]

    def _evaluated(self, body: Body) -> int:
        """Return the position of a value that may be new."""
        match body:
            case Const(value, dtype):
                return self._emit(Constant(repr(value), dtype))
            case _ if body in self._places:
                return self._places[body]
            case Call(op, (Const(number),)) if op == OPERAND:
                return self._operands[int(number)]
            case Call(op, args, dtype):
                positions = tuple(self._position(arg) for arg in args)
                return self._emit(Compute(op, positions, dtype))
            case Masked(mask, inner, other):
                positions = tuple(self._position(part) for part in (mask, inner, other))
                return self._emit(Compute("where", positions, body.dtype))
            case _:
                raise AssertionError("an element without operands is scanned")

    def _emit(self, value: Constant | Compute) -> int:
        """Return the position of ``value``, which is added unless an equal value exists."""
        return self._first + self._values.setdefault(value, len(self._values))


def _without_operands(body: Body) -> Iterator[Body]:
    """Yield the largest parts of ``body`` that read no operand, except numbers."""
    if isinstance(body, Const):
        return
    if not any(isinstance(part, Call) and part.op == OPERAND for part in walk(body)):
        yield body
    elif isinstance(body, Masked) and any(_without_operands(body.body)):
        raise NotLowered("a scan by a function that looks up elements where an operand allows it")
    else:
        for part in children(body):
            yield from _without_operands(part)
