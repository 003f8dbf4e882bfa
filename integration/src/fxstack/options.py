"""All options of ``fxstack.compile``, checked once, in one frozen record."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fxstack_inductor import InductorOptions

MODES: dict[str, str] = {
    "default": "",
    "reduce-overhead": "CUDA graphs; on CPU the same as default, whose host program is already minimal",
    "max-autotune": "autotuned templates on CUDA; on CPU the same as default",
    "max-autotune-no-cudagraphs": "max-autotune without CUDA graphs",
}


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What the layers below capture are told.

    ``partitioner`` is a registered name or a callable; ``inductor`` the code generator's own options.
    """

    mode: str = "default"
    partitioner: str | Callable[..., Any] = "min_cut"
    inductor: InductorOptions = field(default_factory=InductorOptions)


def make_options(mode: str | None, options: Mapping[str, Any] | None) -> CompileOptions:
    """The record for ``compile(mode=, options=)``.

    ``options`` may hold ``partitioner`` and any field of ``InductorOptions``.

    Raises:
        ValueError: an unknown mode or option; the message lists the known ones and the closest match.
    """
    if mode is not None and mode not in MODES:
        raise ValueError(_unknown("mode", mode, MODES))
    given = dict(options or {})
    partitioner = given.pop("partitioner", "min_cut")
    known = {f.name for f in fields(InductorOptions)}
    for name in given:
        if name not in known:
            raise ValueError(_unknown("option", name, {"partitioner", *known}))
    return CompileOptions(mode or "default", partitioner, InductorOptions(**given))


def _unknown(kind: str, name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"fxstack.compile: unknown {kind} {name!r}.{hint} Known: {', '.join(sorted(known))}."
