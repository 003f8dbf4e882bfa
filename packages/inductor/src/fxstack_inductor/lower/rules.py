"""The table of all lowering rules: the union of the modules' registries."""

from __future__ import annotations

from types import MappingProxyType

from fxstack_inductor.lower.elementwise import activations, creation, pointwise, powers
from fxstack_inductor.lower.indexing import joins as indexing
from fxstack_inductor.lower.indexing import resample, scatters, views
from fxstack_inductor.lower.reductions import batches, normalisation, reductions, scans, windows

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

RULES = MappingProxyType({op: rule for module in MODULES for op, rule in module.registry.rules.items()})
