"""What the settings of torch's compiler mean here, and which of them the program has changed.

``torch._dynamo.config``, ``torch._inductor.config`` and ``torch._functorch.config`` are modules of settings that
programs change: by assignment, by ``config.patch`` as context manager or decorator, or in the environment. Each
package that follows some of them registers a table with one ``Meaning`` for every setting. A setting is read when
code is compiled, and only if somebody has loaded the module that holds it, which no package of ours does.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache
from types import CodeType, ModuleType
from typing import Any, Final


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Same:
    """The setting does here what it does in torch: it sets ``option`` to what ``convert`` makes of its value."""

    option: str
    convert: Callable[[Any], Any] = _same
    variable: str = ""
    """The environment variable that turns the setting on with the value 1, if torch has one."""


@dataclass(frozen=True, slots=True)
class Ours(Same):
    """The setting sets an option that serves the same purpose in another way, which ``because`` says."""

    because: str = ""


@dataclass(frozen=True, slots=True)
class NoEffect:
    """The setting changes nothing here, for the reason ``because``."""

    because: str
    except_for: object = None
    """The value that asks for what happens here anyway."""


Meaning = Same | NoEffect
Table = Mapping[str, Meaning]

TABLES: Final[dict[str, Table]] = {}
"""The registered tables, by the name of the module of settings."""

_UNKNOWN: Final = NoEffect("this version of fxstack does not know it")

# Settings about which the program has been warned, with their values.
_WARNED: Final[set[tuple[str, str, str]]] = set()


class SettingWarning(UserWarning):
    """The program has changed a setting of torch's compiler that has no effect here."""


def register(module: str, table: Table) -> None:
    """Add the meanings of settings of ``module``. A package calls this when it is imported."""
    TABLES[module] = {**TABLES.get(module, {}), **table}


def meaning(module: str, name: str) -> Meaning | None:
    """Return the row for a setting: its own, or that of the longest group that it belongs to.

    A group is named by its beginning: ``prefix.*``, ``prefix_*``, or ``*`` for all.
    """
    table = TABLES.get(module, {})
    if name in table:
        return table[name]
    groups = [key for key in table if key.endswith("*") and name.startswith(key[:-1])]
    return table[max(groups, key=len)] if groups else None


def options_from_torch(module: str) -> dict[str, Any]:
    """Return the options that the program has set through settings of ``module``, by the options' names here."""
    table = TABLES.get(module, {})
    rows = ((table.get(name), value) for name, value in changed(module).items())
    return {row.option: row.convert(value) for row, value in rows if isinstance(row, Same)}


def options_from_environment(module: str) -> dict[str, Any]:
    """Return the options that variables of the environment set, which torch reads when the module is imported."""
    rows = (row for row in TABLES.get(module, {}).values() if isinstance(row, Same) and row.variable)
    return {row.option: row.convert(True) for row in rows if os.environ.get(row.variable) == "1"}


def changed(module: str) -> dict[str, Any]:
    """Return the settings of ``module`` that the program has set to another value than torch's default."""
    config = sys.modules.get(module)
    entries = getattr(config, "_config", None)
    if config is None or entries is None:
        return {}
    overrides = _overridden(config, entries)
    found = {name: value for name, value in overrides.items() if not _equal(value, entries[name].default)}
    for name, other, its_name in _aliases(module):
        elsewhere = changed(other)
        if its_name in elsewhere:
            found[name] = elsewhere[its_name]
    return found


@cache
def _aliases(module: str) -> tuple[tuple[str, str, str], ...]:
    """The settings of ``module`` that stand for a setting of another module: name, module, name there."""
    found = []
    for name, entry in sys.modules[module]._config.items():
        other, _, its_name = (getattr(entry, "alias", None) or "").rpartition(".")
        if other and other != module:
            found.append((name, other, its_name))
    return tuple(found)


def _equal(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def _overridden(config: ModuleType, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that have a value of the program. Torch stores it in a context variable since 2.12."""
    unset = getattr(sys.modules.get(type(config).__module__), "_UNSET_SENTINEL", None)
    names = _context_variables(config.__name__)
    if names:
        values = {names[variable]: value for variable, value in copy_context().items() if variable in names}
    else:
        values = {name: getattr(entry, "user_override", unset) for name, entry in entries.items()}
    return {name: value for name, value in values.items() if value is not unset}


@cache
def _context_variables(module: str) -> dict[ContextVar[Any], str]:
    entries = sys.modules[module]._config.items()
    found = ((getattr(entry, "user_override", None), name) for name, entry in entries)
    return {variable: name for variable, name in found if isinstance(variable, ContextVar)}


def warn_of_ignored(code: CodeType) -> None:
    """Warn once for each setting with another value than its default that has no effect here.

    The warning points at ``code``, the function of the program that is compiled.
    """
    for module in TABLES:
        for name, value in changed(module).items():
            row = meaning(module, name) or _UNKNOWN
            key = (module, name, repr(value))
            if not isinstance(row, NoEffect) or key in _WARNED or _equal(value, row.except_for):
                continue
            _WARNED.add(key)
            text = f"{module}.{name} = {value!r} has no effect in fxstack: {row.because}."
            warnings.warn_explicit(text, SettingWarning, code.co_filename, code.co_firstlineno)
