"""Every lowering rule: the union of the registries."""

from __future__ import annotations

from types import MappingProxyType

from fxstack_inductor.lower import (
    activations,
    batches,
    creation,
    indexing,
    normalisation,
    pointwise,
    powers,
    reductions,
    resample,
    scans,
    scatters,
    views,
    windows,
)

MODULES = (
    pointwise,
    powers,
    activations,
    views,
    reductions,
    resample,
    scans,
    scatters,
    normalisation,
    batches,
    creation,
    indexing,
    windows,
)

RULES = MappingProxyType(
    {op: rule for module in MODULES for op, rule in module.registry.rules.items()}
)
