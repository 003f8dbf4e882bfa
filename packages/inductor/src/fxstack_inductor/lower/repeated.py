"""Lower an elementwise operator for one of several nodes with equal operands, and repeat its tensor for the others.

The step of an optimizer applies the same operators to each parameter. The rule of an elementwise operator sees of its
operands only their layouts, so it makes the same expression for equal layouts, which reads other tensors.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import torch
from torch.fx import Node as FxNode

from fxstack_inductor.ir.nodes import (
    Body,
    Call,
    Computed,
    Extern,
    Indirect,
    Input,
    Masked,
    Node,
    Pointwise,
    Read,
)
from fxstack_inductor.lower.context import Context
from fxstack_inductor.lower.elementwise import activations, pointwise, powers
from fxstack_inductor.lower.host.host_numbers import HostNumbers
from fxstack_inductor.lower.layouts import FakeFacts
from fxstack_inductor.lower.program import HostValue
from fxstack_inductor.lower.registry import Rule

PLAIN = (bool, int, str, type(None), torch.dtype, torch.device)
RULES = MappingProxyType({**pointwise.registry.rules, **powers.registry.rules, **activations.registry.rules})
"""The rules that only combine elements of their operands."""


@dataclass(frozen=True, slots=True)
class _Lowered:
    """The tensor that a rule has made, and the tensors that its rule had as operands."""

    result: Pointwise
    operands: tuple[Node, ...]
    device: torch.device


@dataclass(frozen=True, slots=True)
class Operation:
    """What a rule sees of a node: ``key``, and operands of which the key has the metadata: tensors and host numbers."""

    key: Hashable
    operands: tuple[Node | HostValue, ...]


class RepeatedRules:
    """The operations of one graph that have been lowered by rules."""

    def __init__(
        self,
        context: Context,
        rules: Mapping[Any, Rule],
        values: Mapping[FxNode, Any],
        facts: FakeFacts,
        numbers: HostNumbers,
    ) -> None:
        """``values``: the lowered values of nodes."""
        self._context = context
        self._rules = rules
        self._values = values
        self._facts = facts
        self._numbers = numbers
        self._lowered: dict[Hashable, _Lowered] = {}

    def operation(self, node: FxNode) -> Operation | None:
        """Return what the rule of ``node`` sees; None for rules and operands of which more may be seen."""
        value, rule = node.meta.get("val"), RULES.get(node.target)
        if rule is None or self._rules.get(node.target) is not rule or not isinstance(value, torch.Tensor):
            return None
        rounds = node.name in self._context.rounded
        key: list[Hashable] = [node.target, rounds, self._facts.number(value), *node.kwargs]
        operands: list[Node | HostValue] = []
        for arg in (*node.args, *node.kwargs.values()):
            found = self._values[arg] if isinstance(arg, FxNode) else arg
            if isinstance(found, (Computed, Input, Extern)):
                if found.device.type != self._context.target.device:
                    return None
                key += (self._facts.number(arg.meta["val"]), found.shape, found.dtype)
                key.append(_place(found, operands))
            elif isinstance(found, HostValue):
                key += (HostValue, _place(found, operands))
            elif isinstance(found, float):
                key += (float, repr(found))
            elif isinstance(found, PLAIN):
                key += (type(found).__name__, found)  # 1, 1.0 and True are equal
            else:
                return None
        return Operation(tuple(key), tuple(operands))

    def repeat(self, operation: Operation | None) -> Pointwise | None:
        """Make the tensor of an operation that is equal to one that was lowered before; None if there is none."""
        known = None if operation is None else self._lowered.get(operation.key)
        if operation is None or known is None:
            return None
        self._context.device = known.device
        operands = self._tensors(operation)
        nodes = {id(old): new for old, new in zip(known.operands, operands, strict=True)}
        parts: dict[int, Body] = {}
        like = known.result
        result = Pointwise(**self._context.common(like.layout), body=_renamed(like.body, nodes, parts))
        result.index = like.index
        result.reads = tuple([cast("Read", parts[id(read)]) for read in like.reads])
        self._context.nodes.append(result)
        return result

    def keep(self, operation: Operation | None, result: object) -> object:
        """Keep the tensor that a rule has made if it reads the operands alone. Return ``result``."""
        if operation is not None and type(result) is Pointwise and result is self._context.nodes[-1]:
            operands = self._tensors(operation)
            if _reads_only(result, operands):
                self._lowered[operation.key] = _Lowered(result, operands, self._context.device)
        return result

    def _tensors(self, operation: Operation) -> tuple[Node, ...]:
        """Return the operands as tensors that kernels read."""
        return tuple(
            [
                self._numbers.scalar(value, self._context.device).tensor
                if isinstance(value, HostValue)
                else value
                for value in operation.operands
            ]
        )


def _place(operand: Node | HostValue, operands: list[Node | HostValue]) -> int:
    """Return the position of an operand in ``operands``, where it is appended if it is new."""
    for place, known in enumerate(operands):
        if known is operand:
            return place
    operands.append(operand)
    return len(operands) - 1


def _reads_only(result: Pointwise, operands: Sequence[Node]) -> bool:
    """Whether the body reads elements of ``operands`` at places that are not computed."""
    ids = {id(node) for node in operands}
    return all(
        id(read.node) in ids and not any(isinstance(coord, Indirect) for coord in read.coords)
        for read in result.parts
        if isinstance(read, Read)
    )


def _renamed(body: Body, nodes: Mapping[int, Node], parts: dict[int, Body]) -> Body:
    """Return ``body`` with reads of other tensors. ``parts``: the parts that are renamed, by the ids of the old ones."""
    known = parts.get(id(body))
    if known is not None:
        return known
    match body:
        case Read(node, coords):
            new: Body = Read(nodes[id(node)], coords)
        case Call(op, args, dtype):
            new = Call(op, tuple([_renamed(arg, nodes, parts) for arg in args]), dtype)
        case Masked(mask, inner, other):
            new = Masked(_renamed(mask, nodes, parts), _renamed(inner, nodes, parts), other)
        case _:
            new = body
    parts[id(body)] = new
    return new
