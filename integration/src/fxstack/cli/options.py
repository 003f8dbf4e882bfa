"""The options of all stages and the settings of torch's compiler as data, for ``fxstack options`` and ``config``."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable
from dataclasses import MISSING, Field, dataclass
from enum import Enum
from typing import Any

from fxstack.settings import OPTIONS, STAGES
from fxstack_interchange.torch_facts.settings_table import INDUCTOR, TABLES, Setting
from fxstack_interchange.torch_facts.torch_settings import find_setting


@dataclass(frozen=True, slots=True)
class OptionRecord:
    """One option of ``fxstack.compile(options={...})``."""

    stage: str
    name: str
    type: str
    default: str
    meaning: str


def describe_options() -> list[OptionRecord]:
    """Return fxstack's own options, ordered by stage."""
    records = []
    for stage, names in OPTIONS.items():
        if stage == "partition":
            meaning = "A registered name or a callable."
            records.append(OptionRecord(stage, "partitioner", "str | Callable", "'min_cut'", meaning))
        meanings = field_docs(STAGES[stage])
        records += [
            OptionRecord(stage, name, str(option.type), _default(option), meanings.get(name, ""))
            for name, option in names.items()
        ]
    return records


def field_docs(record: type) -> dict[str, str]:
    """Return the first paragraph of the string below each field of a dataclass, by the field's name."""
    (class_node,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(class_node, ast.ClassDef)
    docs: dict[str, str] = {}
    for field, after in zip(class_node.body, class_node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match after:
                case ast.Expr(ast.Constant(str() as text)):
                    docs[field.target.id] = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return docs


def _default(option: Field[Any]) -> str:
    """Return the default of an option as text, the same in each process."""
    value = option.default
    if value is MISSING and option.default_factory is not MISSING:
        value = option.default_factory()
    if isinstance(value, frozenset):  # the order of a set differs from process to process
        return f"{{{', '.join(sorted(map(str, value)))}}}"
    return repr(value.value if isinstance(value, Enum) else value)


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    """A setting of torch, or a group of settings (``triton.*``), and its effect in fxstack."""

    module: str
    name: str
    has_effect: bool
    text: str


def describe_settings(inductor_settings: Iterable[str] = ()) -> list[DescribedSetting]:
    """Return the settings of torch, ordered by module and name.

    ``inductor_settings``: names of further settings of ``torch._inductor.config``. Each is described by the
    row of the table that covers its name.
    """
    by_module = {module: set(table) for module, table in TABLES.items()}
    by_module[INDUCTOR].update(inductor_settings)
    return [
        DescribedSetting(module, name, row.option is not None, _effect(row))
        for module, settings in by_module.items()
        for name in sorted(settings)
        if (row := find_setting(module, name)) is not None
    ]


def _effect(row: Setting) -> str:
    """Return a sentence about the effect of a setting of torch in fxstack: the option that it sets, or why it
    has no effect.
    """
    if row.option is not None:
        return f"sets the option {row.option}" + (f": {row.because}" if row.because else "")
    if row.fixed is not None:
        return f"no effect unless it is {row.fixed!r}, which is what happens here: {row.because}"
    return f"no effect: {row.because}"
