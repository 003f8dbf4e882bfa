"""The settings of ``torch._inductor.config`` and ``torch._functorch.config``: what each of them means here.

A setting is read when a graph is compiled. An option that was given to ``compile`` precedes the setting.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
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

DYNAMO: Final = "torch._dynamo.config"
_MINIFIES = "the first call of each graph is checked, and fxstack minify writes a script"
register(DYNAMO, {name: Ours(name, because=_MINIFIES) for name in ("repro_after", "repro_level")})


@dataclass(frozen=True, slots=True)
class ReproRequest:
    """``after``: ``dynamo`` compares with captured graphs, ``aot`` with functionalized graphs.

    ``level`` is torch's: up to 2 what raises is minified, 3 writes every graph before its first call, 4 minifies what
    is wrong, too.
    """

    after: str
    level: int


def repro_request() -> ReproRequest | None:
    """Return what the program, or else the environment, says about minifying.

    Raises:
        ValueError: it is neither ``dynamo`` nor ``aot``.
    """
    found = options_from_torch(DYNAMO)
    after = found.get("repro_after", os.environ.get("TORCHDYNAMO_REPRO_AFTER"))
    if not after:
        return None
    if after not in ("dynamo", "aot"):
        raise ValueError(f"TORCHDYNAMO_REPRO_AFTER must be dynamo or aot, not {after!r}")
    return ReproRequest(after, int(found.get("repro_level", os.environ.get("TORCHDYNAMO_REPRO_LEVEL", "2"))))


def with_torch_settings(options: CompileOptions) -> CompileOptions:
    """Return ``options`` with what the settings of torch say of those that have their default value."""
    defaults = options_from_environment()
    if repro_request() is not None:
        options = replace(options, inductor=replace(options.inductor, raise_failures=True))
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
