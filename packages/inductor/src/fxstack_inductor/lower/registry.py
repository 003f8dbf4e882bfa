"""The table of lowering rules: an ATen overload finds the function that lowers it.

A rule has the operator's own signature, after the ``Context``: tensors arrive as IR nodes, sizes as ``Expr``. It
returns a node, a tuple of nodes, or ``Updates``, or raises ``NotLowered`` to have the ATen kernel called instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fxstack_inductor.ir.nodes import Node

    Rule = Callable[..., Any]

F = TypeVar("F", bound="Callable[..., Any]")

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Updates:
    """What a rule returns for an operator that changes arguments: ``changes`` are their positions and new values."""

    results: tuple[Node, ...]
    changes: tuple[tuple[int, Node], ...]


class Registry:
    """Rules by overload. Each ``lower`` file fills one at import, and ``rules.RULES`` joins them."""

    def __init__(self) -> None:
        self._rules: dict[Any, Rule] = {}

    def rule(self, *names: str) -> Callable[[F], F]:
        """Register for overloads given as ``"add.Tensor"`` (or ``"prims::x.default"``); ones this torch lacks are skipped."""

        def register(function: F) -> F:
            for name in names:
                self.add(name, function)
            return function

        return register

    def add(self, name: str, function: Rule) -> None:
        overload = find_overload(name)
        if overload is not None:
            if overload in self._rules:
                raise ValueError(f"two lowering rules for {overload}")
            self._rules[overload] = function

    @property
    def rules(self) -> Mapping[Any, Rule]:
        return MappingProxyType(self._rules)


def find_overload(name: str) -> Any:
    """The overload called ``name`` (``[namespace::]op.overload``), or None if this torch has none."""
    namespace, _, rest = name.rpartition("::")
    op, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace or "aten"), op, None)
    return getattr(packet, overload or "default", None)
