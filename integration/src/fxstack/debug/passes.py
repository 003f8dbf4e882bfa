"""The passes of all stages: their list, and their names in ``FXSTACK_DEBUG`` and ``FXSTACK_STOP_AFTER``."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Final

from fxstack_interchange.passes import Pass
from fxstack_interchange.user_warnings import warn_user

STOP_VARIABLE: Final = "FXSTACK_STOP_AFTER"
AFTER: Final = ":after="

_MODULES: Final = (
    "fxstack_capture.passes",
    "fxstack_functionalize.passes",
    "fxstack_partition.passes",
    "fxstack_inductor.passes",
)


@dataclass(frozen=True, slots=True)
class PassRecord:
    """A pass of the pipeline: stage, name, description, example, and the file and line of the code."""

    package: str
    stage: str
    name: str
    sentence: str
    example: str
    """The lines of the ``>>>`` example with its changes."""
    file: str
    line: int


@cache
def all_passes() -> tuple[PassRecord, ...]:
    """Return the passes of all stages, in the order in which stages and passes run."""
    return tuple(
        _record(module.partition(".")[0], stage, step)
        for module in _MODULES
        for stage, passes in import_module(module).STAGES.items()
        for step in passes
    )


def _record(package: str, stage: str, step: Pass[object]) -> PassRecord:
    """Return the description of one pass: its example is the docstring of its function after the first paragraph."""
    run = inspect.unwrap(step.run)
    example = inspect.cleandoc(run.__doc__ or "").partition("\n\n")[2]
    source = inspect.getsourcefile(run) or ""
    return PassRecord(
        package, stage, step.name, step.sentence, example, source, inspect.getsourcelines(run)[1]
    )


def is_pass(stage: str, name: str) -> bool:
    """Return whether ``stage`` has a pass with this name. An empty ``stage`` means any stage."""
    return any(name == record.name and stage in ("", record.stage) for record in all_passes())


def nearest_text(name: str, known: Iterable[str], command: str) -> str:
    """Return a text with the three known names nearest to ``name``, and the command that lists all names."""
    near = ", ".join(difflib.get_close_matches(name, known, n=3, cutoff=0.0))
    return f"The nearest are {near}; '{command}' lists all."


def stops_after(stage: str, name: str) -> bool:
    """Return whether ``FXSTACK_STOP_AFTER`` names a pass, as ``name`` or ``stage:name``."""
    value = os.environ.get(STOP_VARIABLE, "")
    return bool(value) and _is_asked(value, stage, name)


@cache
def _is_asked(value: str, stage: str, name: str) -> bool:
    """Whether ``value``, for example ``inductor:fuse`` or ``fuse``, names the pass ``name`` of ``stage``."""
    warn_of_unknown_stop(value)
    of, _, pass_name = value.rpartition(":")
    return pass_name == name and of in ("", stage)


@cache
def warn_of_unknown_stop(value: str) -> None:
    """Warn once if a value of ``FXSTACK_STOP_AFTER`` names no pass."""
    of, _, pass_name = value.rpartition(":")
    if value and not is_pass(of, pass_name):
        known = {known.name: f"{known.stage}:{known.name}" for known in all_passes()}
        near = nearest_text(value, known.values() if of else known, "fxstack passes")
        warn_user(f"{STOP_VARIABLE}: there is no pass {value!r}. {near}", UserWarning)
