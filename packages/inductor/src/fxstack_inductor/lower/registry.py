"""The table of lowering rules, from ATen overload to the function that lowers the overload.

A rule takes a ``Context`` and then the operator's own arguments: tensors are IR nodes, sizes are ``Expr``. A
rule returns a node, a tuple of nodes, or ``Updates``. A rule that raises ``NotLowered`` leaves the operator
to the ATen kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import torch

from fxstack_inductor.ir.nodes import Node

Rule = Callable[..., Any]

F = TypeVar("F", bound="Callable[..., Any]")

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Updates:
    """The result of a rule for a mutating operator: ``results``, and the new values of arguments by position."""

    results: tuple[Node, ...]
    changes: tuple[tuple[int, Node], ...]
    """Positions of arguments in the call, each with the tensor that replaces the argument's contents."""


class Registry:
    """Rules by overload. Each module of rules fills one registry at import; ``rules.RULES`` joins them."""

    def __init__(self) -> None:
        self._rules: dict[Any, Rule] = {}

    def rule(self, *names: str) -> Callable[[F], F]:
        """Return a decorator that registers a rule for overloads like ``"add.Tensor"`` or ``"prims::x.default"``.

        Overloads that this torch lacks are skipped.
        """

        def register(function: F) -> F:
            """Register ``function`` for each overload, and return it."""
            for name in names:
                self.add(name, function)
            return function

        return register

    def add(self, name: str, function: Rule) -> None:
        """Register ``function`` for an overload, unless this torch lacks the overload.

        Raises:
            ValueError: the overload has a rule already.
        """
        overload = find_overload(name)
        if overload is not None:
            if overload in self._rules:
                raise ValueError(f"two lowering rules for {overload}")
            self._rules[overload] = function

    @property
    def rules(self) -> Mapping[Any, Rule]:
        """The rules by overload."""
        return MappingProxyType(self._rules)


def find_overload(name: str) -> Any:
    """Return the overload called ``name`` (``[namespace::]op.overload``), or None if this torch lacks it."""
    namespace, _, rest = name.rpartition("::")
    op, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace or "aten"), op, None)
    return getattr(packet, overload or "default", None)
