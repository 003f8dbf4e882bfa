"""The settings of ``torch._inductor.config`` and ``torch._functorch.config``: what each of them means here.

A setting is read when a graph is compiled. An option that was given to ``compile`` precedes the setting.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from fxstack.settings import CompileOptions
from fxstack.torch_interop.options import INDUCTOR
from fxstack_inductor import InductorOptions, options_from_environment
from fxstack_interchange.torch_settings import NoEffect, Ours, Table, options_from_torch, register

FUNCTORCH: Final = "torch._functorch.config"


_OF_FUNCTORCH: Table = {
    "activation_memory_budget": Ours(
        "budget", because="the budget is a share of the memory of a simulated step"
    ),
    "activation_memory_budget_*": NoEffect("the solver is exact on a frontier of simulated steps"),
    "functionalize_rng_ops": NoEffect("the option functional_random makes draws functions of a state"),
    "enable_autograd_cache": NoEffect("the option use_cache turns the cache off"),
    "recompute_views": NoEffect("views are recomputed where this frees memory"),
    "aggressive_recomputation": NoEffect("activation_memory_budget asks for more recomputation"),
    "*": NoEffect("it configures the autograd frontend of torch's compiler, which does not run"),
}

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
    budget = options_from_torch(FUNCTORCH).get("budget")
    if budget is not None and options.partitioner == "min_cut":
        bounded = replace(options.partition, budget=budget)
        options = replace(options, partitioner="budget", partition=bounded)
    return options
