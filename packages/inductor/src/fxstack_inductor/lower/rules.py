"""The table of all lowering rules: the union of the modules' registries."""

from __future__ import annotations

from types import MappingProxyType

from fxstack_inductor.lower.elementwise import activations, creation, dropout, pointwise, powers
from fxstack_inductor.lower.indexing import cat_pad_gather, resample, scatters, views
from fxstack_inductor.lower.reductions import batches, normalisation, reductions, scans, windows

# Limits: these stay calls of ATen: sort, topk, bilinear and bicubic interpolation, matrix products,
# convolutions, attention, pooling windows of more than 25 positions, interpolation by fractional factors,
# embedding gradients scaled by frequency, updates of batch statistics that are no inputs, and complex
# numbers.

MODULES = (
    pointwise,
    powers,
    activations,
    dropout,
    views,
    reductions,
    resample,
    scans,
    scatters,
    normalisation,
    batches,
    creation,
    cat_pad_gather,
    windows,
)

RULES = MappingProxyType({op: rule for module in MODULES for op, rule in module.registry.rules.items()})
