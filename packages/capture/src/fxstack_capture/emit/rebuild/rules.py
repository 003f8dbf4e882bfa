"""The table from a class to the rule that rebuilds its instances."""

from __future__ import annotations

from fxstack_capture.emit.rebuild import (
    containers,
    functions,
    generators,
    graph_results,
    identity,
    instances,
    iterators,
)
from fxstack_capture.emit.rebuild.rebuilder import Rule

_EXACT: dict[type, Rule] = {
    **identity.RULES,
    **containers.RULES,
    **functions.RULES,
    **iterators.RULES,
    **generators.RULES,
    **graph_results.RULES,
}


def rule_for(cls: type) -> Rule:
    """Return the rule of exactly this class, of its kind of class, or of instances in general."""
    rule = _EXACT.get(cls)
    if rule is not None:
        return rule
    for applies, family in (*identity.FAMILIES, *iterators.FAMILIES, *containers.FAMILIES):
        if applies(cls):
            return family
    return instances.rebuild
