"""The settings of ``torch._inductor.config`` and ``torch._functorch.config``: what each of them means here.

A setting is read when a graph is compiled. An option that was given to ``compile`` precedes the setting.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

import fxstack_partition
from fxstack.settings import CompileOptions
from fxstack.torch_interop.options import TORCH_OPTIONS, Renamed
from fxstack_inductor import InductorOptions, options_from_environment
from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.torch_settings import NoEffect, Ours, Same, Table, options_from_torch, register
from fxstack_partition import PartitionOptions

INDUCTOR: Final = "torch._inductor.config"
FUNCTORCH: Final = "torch._functorch.config"


def _not(value: object) -> bool:
    return not value


def _within_budget(value: float) -> Any:
    """Return a partitioner for the share of saved activations that torch calls a budget; 1 is the default."""

    def within_budget(joint: StageGraph, options: PartitionOptions) -> Partition:
        return fxstack_partition.budget(joint, replace(options, budget=value))

    return within_budget


_OF_INDUCTOR: Table = {
    **{
        name: Same(row.ours, bool) if isinstance(row, Renamed) else NoEffect(row.because, row.value)
        for name, row in TORCH_OPTIONS.items()
    },
    "freezing": Same("freezing", bool),
    "force_disable_caches": Same("use_cache", _not),
    "pre_grad_custom_pass": NoEffect("passes over graphs belong into a backend around the backend"),
    "joint_custom_pre_pass": NoEffect("passes over the joint graph belong into a partitioner"),
    "joint_custom_post_pass": NoEffect("passes over the joint graph belong into a partitioner"),
    "custom_partitioner_fn": NoEffect("the option partitioner takes a partitioner"),
    "_fuse_ddp_communication": NoEffect("each gradient is reduced by its own call", except_for=True),
    "cpp.*": NoEffect("the options compiler and optimization configure C"),
    "triton.*": NoEffect("tiles and launches of kernels follow from rules"),
    "cuda.*": NoEffect("kernels for CUDA are written in Triton"),
    "trace.*": NoEffect("see fxstack.compile_log, and the option repro_dir"),
    "aot_inductor.*": NoEffect("compiled programs are stored on disk by themselves"),
    "*": NoEffect("it configures the code generator of torch's compiler, which does not run"),
}

_OF_FUNCTORCH: Table = {
    "activation_memory_budget": Ours(
        "partitioner", _within_budget, because="the budget is a share of the memory of a simulated step"
    ),
    "activation_memory_budget_*": NoEffect("the solver is exact on a frontier of simulated steps"),
    "functionalize_rng_ops": NoEffect("the option functional_random makes draws functions of a state"),
    "enable_autograd_cache": NoEffect("the option use_cache turns the cache off"),
    "recompute_views": NoEffect("views are recomputed where this frees memory"),
    "aggressive_recomputation": NoEffect("activation_memory_budget asks for more recomputation"),
    "*": NoEffect("it configures the autograd frontend of torch's compiler, which does not run"),
}

register(INDUCTOR, _OF_INDUCTOR)
register(FUNCTORCH, _OF_FUNCTORCH)


def with_torch_settings(options: CompileOptions) -> CompileOptions:
    """Return ``options`` with what the settings of torch say of those that have their default value."""
    defaults = options_from_environment()
    known = {field.name for field in fields(InductorOptions)}
    found = options_from_torch(INDUCTOR)
    new = {
        name: value
        for name, value in found.items()
        if name in known and getattr(options.inductor, name) == getattr(defaults, name)
    }
    if new:
        options = replace(options, inductor=replace(options.inductor, **new))
    partitioner = options_from_torch(FUNCTORCH).get("partitioner")
    if partitioner is not None and options.partitioner == "min_cut":
        options = replace(options, partitioner=partitioner)
    return options
