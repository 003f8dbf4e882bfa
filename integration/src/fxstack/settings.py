"""All options of ``fxstack.compile``, checked once, in one frozen record."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fxstack.torch_interop.options import TORCH_OPTIONS, in_our_words
from fxstack_capture import CaptureOptions
from fxstack_functionalize import AotOptions
from fxstack_inductor import InductorOptions, options_from_environment

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


def make_options(mode: str | None, options: Mapping[str, Any] | None) -> CompileOptions:
    """Return the record for ``compile(mode=, options=)``.

    ``options`` may have ``partitioner`` and any field of ``CaptureOptions`` (except ``fullgraph`` and
    ``dynamic``, which are arguments of ``compile``), ``AotOptions`` and ``InductorOptions``, or options of
    ``torch.compile`` (see ``torch_interop.options``).

    Raises:
        ValueError: if a mode or option is unknown. The message lists the known ones and the closest match.
    """
    if mode is not None and mode not in MODES:
        raise ValueError(_unknown("mode", mode, MODES))
    capture, inductor, functionalize = _layers()
    known = {"partitioner"} | capture | inductor | functionalize
    given = in_our_words(options or {}, frozenset(known))
    for name in given:
        if name not in known:
            raise ValueError(_unknown("option", name, known))
    given = {**_OFF, **_OF_MODES.get(mode or "default", {}), **given}
    return CompileOptions(
        mode or "default",
        given.get("partitioner", "min_cut"),
        CaptureOptions(**{name: given[name] for name in capture & given.keys()}),
        replace(
            options_from_environment(),
            # ``refusals`` runs the captured graph again instead.
            **{"rerun_refused": False, **{name: given[name] for name in inductor & given.keys()}},
        ),
        AotOptions(**{name: given[name] for name in functionalize & given.keys()}),
    )


def _layers() -> tuple[set[str], set[str], set[str]]:
    """Return the names of the options of capture, inductor and functionalize."""
    return (
        {f.name for f in fields(CaptureOptions)} - {"fullgraph", "dynamic"},
        {f.name for f in fields(InductorOptions)},
        {f.name for f in fields(AotOptions)} - {"on_error"},
    )


def list_options() -> list[str]:
    """Return the names for ``compile(options=...)``: ours, then supported ones of ``torch.compile``."""
    return [*sorted(set().union({"partitioner"}, *_layers())), *sorted(TORCH_OPTIONS)]


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """Return the options that each mode of ``compile`` sets, by mode; with ``mode`` those of this mode.

    Raises:
        ValueError: if the mode is unknown.
    """
    if mode is None:
        return {name: dict(_OF_MODES.get(name, {})) for name in MODES}
    if mode not in MODES:
        raise ValueError(_unknown("mode", mode, MODES))
    return dict(_OF_MODES.get(mode, {}))


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    candidates = [*known, *(TORCH_OPTIONS if kind == "option" else ())]
    close = difflib.get_close_matches(name, candidates, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"fxstack.compile: unknown {kind} {name!r}.{hint} Known: {', '.join(sorted(known))}."
