"""Read the settings of torch's compiler that the program has changed, and translate them by ``settings_table``.

``torch._dynamo.config``, ``torch._inductor.config`` and ``torch._functorch.config`` are modules of settings that
programs change: by assignment, by ``config.patch`` as context manager or decorator, or in the environment. A setting
is read when code is compiled, and only if the program has loaded its module, which no package of fxstack does.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from contextvars import ContextVar, copy_context
from dataclasses import fields, replace
from functools import cache
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fxstack_interchange.environment import Variable, read_environment
from fxstack_interchange.torch_facts.settings_table import DYNAMO, TABLES, Setting

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    T = TypeVar("T", bound=DataclassInstance)

_UNKNOWN: Final = Setting(None, because="this version of fxstack does not know it")

# Settings about which the program has been warned, with their values.
_WARNED: Final[set[tuple[str, str, str]]] = set()


class SettingWarning(UserWarning):
    """The program has changed a setting of torch's compiler that has no effect here."""


def find_setting(module: str, name: str) -> Setting | None:
    """Return the row of a setting: its own row, or the row of the longest group that the setting belongs to.

    The name of a group is ``prefix.*``, ``prefix_*``, or ``*`` for all settings of the module.
    """
    table = TABLES.get(module, {})
    if name in table:
        return table[name]
    groups = [key for key in table if key.endswith("*") and name.startswith(key[:-1])]
    return table[max(groups, key=len)] if groups else None


def options_from_torch(module: str) -> dict[str, Any]:
    """Return the options that the program has set through settings of ``module``, by the options' names."""
    table = TABLES.get(module, {})
    rows = ((table.get(name), value) for name, value in changed_settings(module).items())
    return {
        row.option: row.convert(value) for row, value in rows if row is not None and row.option is not None
    }


def options_from_environment(module: str) -> dict[str, Any]:
    """Return option name -> value, for each option that an environment variable sets.

    Torch reads the variables when it imports ``module``.
    """
    variables = (
        Variable(row.variable, row.option, row.parse)
        for row in TABLES.get(module, {}).values()
        if row.variable and row.option is not None
    )
    return read_environment(variables)


def with_unset_options(options: T, defaults: T, values: Mapping[str, Any]) -> T:
    """Return the record ``options``. A field that has its default takes its value from ``values``.

    An option that the program gives to the compiler overrides a setting of torch. ``values`` may have names
    of options of other records.
    """
    if not values:
        return options
    unset = {
        field.name
        for field in fields(options)
        if getattr(options, field.name) == getattr(defaults, field.name)
    }
    return replace(options, **{name: value for name, value in values.items() if name in unset})


def changed_settings(module: str) -> dict[str, Any]:
    """Return name -> value, for each setting of ``module`` that the program has changed from torch's default."""
    config = sys.modules.get(module)
    entries = getattr(config, "_config", None)
    if config is None or entries is None:
        return {}
    overrides = _overridden(config, entries)
    found = {name: value for name, value in overrides.items() if not _equal(value, entries[name].default)}
    for name, other, its_name in _aliases(module):
        elsewhere = changed_settings(other)
        if its_name in elsewhere:
            found[name] = elsewhere[its_name]
    return found


@cache
def _aliases(module: str) -> tuple[tuple[str, str, str], ...]:
    """Return (name, other module, name in the other module) for each setting of ``module`` that is an alias."""
    found = []
    for name, entry in sys.modules[module]._config.items():
        other, _, its_name = (getattr(entry, "alias", None) or "").rpartition(".")
        if other and other != module:
            found.append((name, other, its_name))
    return tuple(found)


def _equal(value: object, default: object) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def _overridden(config: ModuleType, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return name -> value, for each setting that the program has set.

    Since 2.12 torch stores such a value in a context variable.
    """
    unset = getattr(sys.modules.get(type(config).__module__), "_UNSET_SENTINEL", None)
    names = _context_variables(config.__name__)
    if names:
        values = {names[variable]: value for variable, value in copy_context().items() if variable in names}
    else:
        values = {name: getattr(entry, "user_override", unset) for name, entry in entries.items()}
    return {name: value for name, value in values.items() if value is not unset}


@cache
def _context_variables(module: str) -> dict[ContextVar[Any], str]:
    """Return the context variables of a config module of torch, each with the name of its setting.

    Before torch 2.12 there are none.
    """
    entries = sys.modules[module]._config.items()
    found = ((getattr(entry, "user_override", None), name) for name, entry in entries)
    return {variable: name for variable, name in found if isinstance(variable, ContextVar)}


def warn_of_ignored(code: CodeType, module: str = DYNAMO) -> None:
    """Warn once for each setting of ``module`` with another value than its default that has no effect here.

    The warning points at ``code``, the function of the program that is compiled.
    """
    for name, value in changed_settings(module).items():
        row = find_setting(module, name) or _UNKNOWN
        key = (module, name, repr(value))
        if row.option is not None or key in _WARNED or _equal(value, row.fixed):
            continue
        _WARNED.add(key)
        text = f"{module}.{name} = {value!r} has no effect in fxstack: {row.because}."
        warnings.warn_explicit(text, SettingWarning, code.co_filename, code.co_firstlineno)
