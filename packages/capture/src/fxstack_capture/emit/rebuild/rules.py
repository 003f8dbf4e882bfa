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
    """Return the rule that is registered for exactly this class, else the rule of its kind of class, else the
    rule for any instance.
    """
    rule = _EXACT.get(cls)
    if rule is not None:
        return rule
    for applies, family in (*identity.FAMILIES, *iterators.FAMILIES, *containers.FAMILIES):
        if applies(cls):
            return family
    return instances.rebuild
