"""All options of ``fxstack.compile``, checked once, in one frozen record.

Settings of ``torch._inductor.config`` and ``torch._functorch.config`` are read when a graph is compiled. An option that
was given to ``compile`` precedes the setting.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from fxstack.torch_options import INDUCTOR, TORCH_MODES, TORCH_OPTIONS, OptionError, in_our_words
from fxstack_capture import CaptureOptions
from fxstack_functionalize import AotOptions
from fxstack_inductor import InductorOptions, options_from_environment
from fxstack_interchange.torch_facts.torch_settings import NoEffect, Ours, Table, options_from_torch, register
from fxstack_interchange.user_warnings import warn_user
from fxstack_partition import PartitionOptions
from fxstack_partition.mincut.solve import SOLVERS
from fxstack_partition.registry import REGISTRY, UnknownPartitionerError

MODES: dict[str, str] = {
    "default": "",
    "reduce-overhead": "CUDA graphs; on CPU the same as default, whose host program is already minimal",
    "safe": "both the compiled graph and eager torch serve the first calls, and the faster is kept, graph by graph",
    "max-autotune": "CUDA graphs, and kernels of matrix products chosen by measurement; on CPU "
    "frozen weights in inference (see the option freezing)",
    "max-autotune-no-cudagraphs": "the same without CUDA graphs",
}


_OF_MODES: dict[str, dict[str, bool]] = {
    "reduce-overhead": {"cuda_graphs": True},
    "max-autotune": {"cuda_graphs": True, "autotune": True, "freezing": True},
    "max-autotune-no-cudagraphs": {"autotune": True, "freezing": True},
}
"""Options that a mode sets, unless ``options`` sets them."""
_OFF = {"cuda_graphs": False, "autotune": False, "freezing": False}


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options of all stages. ``partitioner`` is a registered name or a callable."""

    mode: str = "default"
    partitioner: str | Callable[..., Any] = "min_cut"
    capture: CaptureOptions = field(default_factory=CaptureOptions)
    inductor: InductorOptions = field(default_factory=options_from_environment)
    functionalize: AotOptions = field(default_factory=AotOptions)
    partition: PartitionOptions = field(default_factory=PartitionOptions)


def make_options(mode: str | None, options: Mapping[str, Any] | None) -> CompileOptions:
    """Return the record for ``compile(mode=, options=)``.

    ``options`` may have ``partitioner`` and any field of ``CaptureOptions`` (except ``fullgraph`` and
    ``dynamic``, which are arguments of ``compile``), ``AotOptions``, ``PartitionOptions`` and
    ``InductorOptions``, or options of ``torch.compile`` (see ``torch_options``). A budget without a
    partitioner is one for the partitioner ``"budget"``.

    Raises:
        OptionError: if a mode, option or partitioner is unknown. The message lists the known ones and the
            closest match.
    """
    if mode is not None and mode in TORCH_MODES:
        warn_user(f"fxstack.compile: mode={mode!r} has no effect here: {TORCH_MODES[mode]}.", UserWarning)
        mode = None
    if mode is not None and mode not in MODES:
        raise OptionError(_unknown("mode", mode, MODES))
    capture, inductor, functionalize, partition = _layers()
    known = {"partitioner"} | capture | inductor | functionalize | partition
    given = in_our_words(options or {}, frozenset(known))
    for name in given:
        if name not in known:
            raise OptionError(_unknown("option", name, known))
    _check_types(given)
    bounded = any(given.get(name) is not None for name in ("budget", "time_overhead"))
    partitioner = given.get("partitioner", "budget" if bounded else "min_cut")
    for kind, name, names in (
        ("solver", given.get("solver", "scipy"), SOLVERS),
        ("target", given.get("target", "cpu"), ("cpu", "cuda", None)),
        ("host", given.get("host", "native"), ("native", "python")),
    ):
        if name not in names:
            raise OptionError(_unknown(kind, name, names))
    if not callable(partitioner):
        try:
            REGISTRY.get(partitioner)
        except UnknownPartitionerError:
            raise OptionError(_unknown("partitioner", partitioner, REGISTRY.names())) from None
    given = {**_OFF, **_OF_MODES.get(mode or "default", {}), **given}
    return CompileOptions(
        mode or "default",
        partitioner,
        CaptureOptions(**{name: given[name] for name in capture & given.keys()}),
        replace(
            options_from_environment(),
            # ``refusals`` runs the captured graph again instead.
            **{"rerun_refused": False, **{name: given[name] for name in inductor & given.keys()}},
        ),
        AotOptions(**{name: given[name] for name in functionalize & given.keys()}),
        PartitionOptions(**{name: given[name] for name in partition & given.keys()}),
    )


def _check_types(given: Mapping[str, Any]) -> None:
    """Raise TypeError for an option whose value has another type than the option's record declares."""
    declared = {
        option.name: str(option.type).split(" | ") for record in _RECORDS for option in fields(record)
    }
    for name, value in given.items():
        wanted = declared.get(name, [])
        if not _PLAIN.keys() >= set(wanted) or not wanted:
            continue  # callables and records are checked where they are used
        if not any(_is_a(value, _PLAIN[word]) for word in wanted):
            raise TypeError(
                f"fxstack.compile: option {name!r} must be {' or '.join(wanted)},"
                f" not {value!r} of type {type(value).__name__}."
            )


def _is_a(value: object, kind: type) -> bool:
    """Whether an option of type ``kind`` takes ``value``: a bool is no number, and an int is a float."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, kind) or (kind is float and isinstance(value, int))


_PLAIN = {"bool": bool, "int": int, "float": float, "str": str, "None": type(None)}
_RECORDS = (CaptureOptions, AotOptions, InductorOptions, PartitionOptions)


def _layers() -> tuple[set[str], ...]:
    """Return the names of the options of capture, inductor, functionalize and partition."""
    return (
        {f.name for f in fields(CaptureOptions)} - {"fullgraph", "dynamic"},
        {f.name for f in fields(InductorOptions)},
        {f.name for f in fields(AotOptions)} - {"on_error", "whole_attention"},
        {f.name for f in fields(PartitionOptions)},
    )


_EXAMPLES = frozenset(name for name in TORCH_OPTIONS if not name.endswith("*"))
"""Options of torch with a row of their own."""


def list_options() -> list[str]:
    """Return the names for ``compile(options=...)``: ours, then supported ones of ``torch.compile``."""
    return [*sorted(set().union({"partitioner"}, *_layers())), *sorted(_EXAMPLES)]


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """Return the options that each mode of ``compile`` sets, by mode; with ``mode`` those of this mode.

    Raises:
        ValueError: if the mode is unknown.
    """
    if mode is None:
        return {name: dict(_OF_MODES.get(name, {})) for name in MODES}
    if mode not in MODES:
        raise OptionError(_unknown("mode", mode, MODES))
    return dict(_OF_MODES.get(mode, {}))


def _unknown(kind: str, name: object, known: Iterable[object]) -> str:
    candidates = [*map(str, known), *(_EXAMPLES if kind == "option" else ())]
    close = difflib.get_close_matches(str(name), candidates, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"fxstack.compile: unknown {kind} {name!r}.{hint} Known: {', '.join(sorted(map(str, known)))}."


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


CHECKS: Final[list[Any]] = []
"""The ``minify.checking.Check`` of ``fxstack minify`` in this process, if there is one: an empty list or one item."""


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
