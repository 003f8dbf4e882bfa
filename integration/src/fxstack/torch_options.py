"""Translate the options of ``torch.compile``, so that a program can use fxstack without changing its ``options``.

The table of torch's settings gives each option of torch its meaning: another name of an option of fxstack, or fixed
behaviour. An option without effect causes a warning and changes nothing: these options affect how code is compiled,
never its results.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from fxstack_interchange.torch_facts.settings_table import INDUCTOR, TABLES, Setting
from fxstack_interchange.torch_facts.torch_errors import CompilerError
from fxstack_interchange.torch_facts.torch_settings import find_setting
from fxstack_interchange.user_warnings import warn_user


class OptionError(CompilerError, ValueError):
    """A mode or option is unknown, or has a value that it cannot have. Torch raises RuntimeError."""


TORCH_MODES: Mapping[str, str] = {
    "lite": "it turns off optimizations of torch's compiler, which does not run"
}
"""Mode of torch -> reason, for each mode that is the default mode here."""


@cache
def names_of_torch() -> frozenset[str]:
    """Return the settings of the installed torch, by its source: importing the module loads torch's compiler.

    The set is empty where torch is installed without sources.
    """
    file = Path(torch.__file__).parent.joinpath("_inductor", "config.py")
    body = ast.parse(file.read_text("utf-8")).body if file.exists() else []
    classes = {statement.name: statement for statement in body if isinstance(statement, ast.ClassDef)}
    return frozenset(_settings(body, "", classes))


def _settings(body: Sequence[ast.stmt], prefix: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """Yield the dotted names that statements of a class or module assign, inherited names included."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            bases = [classes[base.id] for base in statement.bases if isinstance(base, ast.Name)]
            for cls in (statement, *bases):
                yield from _settings(cls.body, f"{prefix}{statement.name}.", classes)
        elif isinstance(statement, ast.If):
            yield from _settings([*statement.body, *statement.orelse], prefix, classes)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


def _setting(option: str) -> Setting | None:
    """Return the row for an option of ``torch.compile``; None if the installed torch has no such option."""
    is_known = option in TABLES[INDUCTOR] or option in names_of_torch()
    return find_setting(INDUCTOR, option) if is_known else None


def translate_options(options: Mapping[str, Any], own_names: Container[str]) -> dict[str, Any]:
    """Return ``options`` (name -> value) with torch's names replaced. Names in ``own_names`` and unknown names stay.

    Raises:
        OptionError: if a switch of torch has another value than True or False.
    """
    translated = {name: value for name, value in options.items() if name in own_names}
    ignored = []
    for name, value in options.items():
        if name in own_names:
            continue
        row = _setting(name.replace("-", "_"))  # as torch reads names
        if row is None:
            translated[name] = value
            continue
        if row.is_switch and not isinstance(value, bool):
            raise OptionError(f"fxstack.compile: option {name!r} must be True or False, not {value!r}.")
        if row.option is not None:
            translated.setdefault(row.option, row.convert(value))
        elif value is not row.fixed:
            ignored.append(f"{name}={value!r} ({row.because})")
    if ignored:
        text = "fxstack.compile: these options of torch.compile have no effect here: "
        warn_user(text + "; ".join(sorted(ignored)), UserWarning)
    return translated
