"""Operators with effects: what a call does beside returning results, so that no stage may drop, repeat or move it.

The graph is the order: calls for which ``is_ordered`` is true run in the order of their nodes, once each. No tokens are
threaded through a graph for this; every stage asks here.
"""

from __future__ import annotations

from typing import Any

from torch._higher_order_ops.effects import has_effects
from torch._ops import HigherOrderOperator, OpOverload

BUILTIN = frozenset({"aten", "prim", "prims"})
"""Namespaces whose operators return nothing only to check something, unless they are registered."""


def is_ordered(target: Any) -> bool:
    """Whether calls of ``target`` have effects: torch has it registered so, or it is a custom operator that returns nothing."""
    if not isinstance(target, (OpOverload, HigherOrderOperator)):
        return False
    return has_effects(target) or (isinstance(target, OpOverload) and _only_acts(target))


def _only_acts(operator: OpOverload[..., Any]) -> bool:
    schema = operator._schema
    return not schema.returns and not schema.is_mutable and operator.namespace not in BUILTIN
