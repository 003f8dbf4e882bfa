"""All options of ``fxstack.compile``, checked once, in one frozen record.

The options of a stage are the fields of its record; no list repeats their names. Settings of
``torch._inductor.config`` and ``torch._functorch.config`` are read when a graph is compiled. An option that
was given to ``compile`` overrides the setting.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, get_type_hints

from fxstack.torch_options import TORCH_MODES, OptionError, translate_options
from fxstack_capture import CaptureOptions
from fxstack_functionalize import AotOptions
from fxstack_inductor import InductorOptions, options_from_environment
from fxstack_interchange.torch_facts.settings_table import DYNAMO, FUNCTORCH, INDUCTOR, TABLES
from fxstack_interchange.torch_facts.torch_settings import options_from_environment as torch_variables
from fxstack_interchange.torch_facts.torch_settings import options_from_torch, with_unset_options
from fxstack_interchange.user_warnings import warn_user
from fxstack_partition import PartitionOptions
from fxstack_partition.mincut.solve import SOLVERS
from fxstack_partition.registry import REGISTRY, UnknownPartitionerError

MODES: Final[Mapping[str, Mapping[str, bool]]] = {
    "default": {},
    "safe": {},
    "reduce-overhead": {"cuda_graphs": True},
    "max-autotune": {"cuda_graphs": True, "autotune": True, "freezing": True},
    "max-autotune-no-cudagraphs": {"autotune": True, "freezing": True},
}
"""The options of inductor that each mode sets, unless ``options`` sets them.

``safe`` times the compiled graph and eager torch on the first calls and keeps the faster, graph by graph
(``safe.py``). CUDA graphs have no effect on CPU; ``freezing`` has no effect on CUDA.
"""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options of all stages."""

    mode: str = "default"
    partitioner: str | Callable[..., Any] = "min_cut"
    """A registered name or a callable."""
    capture: CaptureOptions = field(default_factory=CaptureOptions)
    functionalize: AotOptions = field(default_factory=AotOptions)
    partition: PartitionOptions = field(default_factory=PartitionOptions)
    inductor: InductorOptions = field(default_factory=options_from_environment)


STAGES: Final[Mapping[str, type]] = {
    name: record
    for name, record in get_type_hints(CompileOptions).items()
    if isinstance(record, type) and is_dataclass(record)
}
"""The record of options of each stage, by the stage's name."""

OPTIONS: Final[Mapping[str, Mapping[str, Field[Any]]]] = {
    stage: {option.name: option for option in fields(record)} for stage, record in STAGES.items()
}
"""The options of each stage, by name: ``compile(options=)`` takes all of them."""

_PARTITIONER: Final = "partitioner"
"""The option of ``compile`` that is no field of a stage's record. It belongs to the stage ``partition``."""


def make_options(
    mode: str | None, options: Mapping[str, Any] | None, capture: Mapping[str, Any] | None = None
) -> CompileOptions:
    """Return the record for ``compile(mode=, options=)``.

    ``options`` has ``partitioner``, fields of the stages' records, and options of ``torch.compile`` (see
    ``torch_options``). A field is given by its name (``{"budget": 0.3}``) or under its stage's name
    (``{"partition": {"budget": 0.3}}``). ``capture`` has options of capture that replace the defaults of
    their fields. A budget without a partitioner requests the partitioner ``"budget"``.

    Raises:
        OptionError: if a mode, option or partitioner is unknown, or a name belongs to several stages. The message has
            the closest names.
        TypeError: if a value has another type than the option's field declares.
    """
    if mode is not None and mode in TORCH_MODES:
        warn_user(f"fxstack.compile: mode={mode!r} has no effect here: {TORCH_MODES[mode]}.", UserWarning)
        mode = None
    if mode is not None and mode not in MODES:
        raise OptionError(_unknown("mode", mode, MODES))
    by_stage = _sort_by_stage(options or {})
    for stage, values in by_stage.items():
        _check_types(stage, values)
    partition, inductor = by_stage["partition"], by_stage["inductor"]
    is_bounded = any(partition.get(name) is not None for name in ("budget", "time_overhead"))
    partitioner = partition.pop(_PARTITIONER, "budget" if is_bounded else "min_cut")
    for kind, name, names in (
        ("solver", partition.get("solver", "scipy"), SOLVERS),
        ("target", inductor.get("target", "cpu"), ("cpu", "cuda", None)),
        ("host", inductor.get("host", "native"), ("native", "python")),
        ("dropout", inductor.get("dropout", "compared"), ("compared", "generated", "aten")),
    ):
        if name not in names:
            raise OptionError(_unknown(kind, name, names))
    if not callable(partitioner):
        try:
            REGISTRY.get(partitioner)
        except UnknownPartitionerError:
            raise OptionError(_unknown("partitioner", partitioner, REGISTRY.names())) from None
    by_stage["capture"] = {**(capture or {}), **by_stage["capture"]}
    # ``refusals`` runs a refused graph again in eager, so inductor must not do it a second time.
    by_stage["inductor"] = {"rerun_refused": False, **MODES[mode or "default"], **inductor}
    defaults = CompileOptions(mode or "default", partitioner)
    records = {stage: replace(getattr(defaults, stage), **values) for stage, values in by_stage.items()}
    return replace(defaults, **records)


def _sort_by_stage(options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options of each stage by name, from both spellings.

    Raises:
        OptionError: if an option is unknown, belongs to several stages or is given in both spellings.
    """
    by_stage: dict[str, dict[str, Any]] = {stage: {} for stage in STAGES}
    for stage in STAGES:
        values = options.get(stage, {})
        if not isinstance(values, Mapping):
            raise TypeError(f"fxstack.compile: option {stage!r} must be a dict of options, not {values!r}.")
        for name, value in values.items():
            if stage not in stages_of(name):
                raise OptionError(_unknown_option(name, stage))
            by_stage[stage][name] = value
    flat = {name: value for name, value in options.items() if name not in STAGES}
    for name, value in translate_options(flat, list_own_options()).items():
        stages = stages_of(name)
        if not stages:
            raise OptionError(_unknown_option(name))
        if len(stages) > 1:
            spellings = " or ".join(f"{{{stage!r}: {{{name!r}: {value!r}}}}}" for stage in stages)
            places = " and ".join(stages)
            raise OptionError(f"fxstack.compile: {places} have an option {name!r}. Write {spellings}.")
        if name in by_stage[stages[0]]:
            raise OptionError(f"fxstack.compile: option {name!r} of {stages[0]} is given twice.")
        by_stage[stages[0]][name] = value
    return by_stage


def stages_of(option: str) -> list[str]:
    """Return the names of the stages that have an option of this name.

    Several names mean that the option is ambiguous.
    """
    if option == _PARTITIONER:
        return ["partition"]
    return [stage for stage, names in OPTIONS.items() if option in names]


def _check_types(stage: str, values: Mapping[str, Any]) -> None:
    """Raise TypeError for an option whose value has another type than the option's record declares."""
    for name, value in values.items():
        declared = str(OPTIONS[stage][name].type).split(" | ") if name in OPTIONS[stage] else []
        if not declared or not _PLAIN.keys() >= set(declared):
            continue  # callables and records are checked where they are used
        if not any(_is_a(value, _PLAIN[word]) for word in declared):
            raise TypeError(
                f"fxstack.compile: option {name!r} must be {' or '.join(declared)},"
                f" not {value!r} of type {type(value).__name__}."
            )


def _is_a(value: object, kind: type) -> bool:
    """Whether an option of type ``kind`` takes ``value``: a bool is no number, and an int is a float."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, kind) or (kind is float and isinstance(value, int))


_PLAIN = {"bool": bool, "int": int, "float": float, "str": str, "None": type(None)}
"""Types whose values can be checked, by their names in the annotations of the records."""

_OF_TORCH = sorted(name for name in TABLES[INDUCTOR] if not name.endswith("*"))
"""Options of ``torch.compile`` with a row of their own in the table of settings."""


def list_own_options() -> list[str]:
    """Return the names of the options of all stages."""
    return sorted({_PARTITIONER}.union(*OPTIONS.values()))


def list_options() -> list[str]:
    """Return the names for ``compile(options=...)``: options of the stages, then options of ``torch.compile``."""
    return [*list_own_options(), *_OF_TORCH]


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """Return the options that each mode of ``compile`` sets, by mode; with ``mode`` the options of this mode.

    Raises:
        ValueError: if the mode is unknown.
    """
    if mode is None:
        return {name: dict(options) for name, options in MODES.items()}
    if mode not in MODES:
        raise OptionError(_unknown("mode", mode, MODES))
    return dict(MODES[mode])


def _unknown(kind: str, name: object, known: Iterable[object]) -> str:
    """Return the message about an unknown name, with the nearest known name. ``kind``: for example ``option``."""
    close = difflib.get_close_matches(str(name), map(str, known), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"fxstack.compile: unknown {kind} {name!r}.{hint} Known: {', '.join(sorted(map(str, known)))}."


def _unknown_option(name: object, stage: str | None = None) -> str:
    """Return the error text for an unknown option: its name, ``stage`` if it was given under a stage, and
    similar names.
    """
    close = difflib.get_close_matches(str(name), list_options(), n=3)
    similar = [" of ".join([repr(match), *stages_of(match)[:1]]) for match in close]
    hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
    known = f"{', '.join(STAGES)}; the command fxstack options lists their options"
    where = "" if stage is None else f" of {stage}"
    return f"fxstack.compile: unknown option {name!r}{where}.{hint} Stages: {known}."


CHECKS: Final[list[Any]] = []
"""The ``minify.checking.Check`` of ``fxstack minify`` in this process, if there is one: an empty list or one item."""


@dataclass(frozen=True, slots=True)
class ReproRequest:
    """A request of torch's setting ``repro_after``: check the first call of each compiled graph, and minify failures.

    ``after`` selects the reference for the results: ``dynamo`` is the captured graph in eager, ``aot`` is the
    same graph compiled by ``aot_eager``. ``level`` has torch's meaning. Up to 2: minify graphs that raise. 3: write
    every graph before its first call. 4: minify graphs that raise or have wrong results.
    """

    after: str
    level: int


def repro_request() -> ReproRequest | None:
    """Return the request to minify failing graphs, from the program's settings or the environment; None if
    there is none.

    Raises:
        ValueError: ``repro_after`` is neither ``dynamo`` nor ``aot``.
    """
    values = {**torch_variables(DYNAMO), **options_from_torch(DYNAMO)}
    after = values.get("repro_after")
    if not after:
        return None
    if after not in ("dynamo", "aot"):
        raise ValueError(f"TORCHDYNAMO_REPRO_AFTER must be dynamo or aot, not {after!r}")
    return ReproRequest(after, values.get("repro_level", 2))


def with_torch_settings(options: CompileOptions) -> CompileOptions:
    """Return ``options``. Replace each option that has its default value by the value of torch's setting for it.

    A new setting needs only a row in the table of settings, because the option's stage follows from its name.
    Capture reads dynamo's settings itself, before a graph exists.
    """
    values = {**options_from_torch(INDUCTOR), **options_from_torch(FUNCTORCH)}
    inductor = options.inductor
    if repro_request() is not None:
        inductor = replace(inductor, raise_failures=True)
    inductor = with_unset_options(inductor, options_from_environment(), values)
    functionalize = with_unset_options(options.functionalize, AotOptions(), values)
    partition, partitioner = options.partition, options.partitioner
    if partitioner == "min_cut":  # the program has requested no partitioner and no budget
        partition = with_unset_options(partition, PartitionOptions(), values)
        partitioner = "min_cut" if partition.budget is None else "budget"
    options = replace(options, partitioner=partitioner, partition=partition)
    return replace(options, functionalize=functionalize, inductor=inductor)
