"""The options of all stages as data: name, type, default, and the meaning from the records' docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from fxstack.settings import list_options
from fxstack_capture import CaptureOptions
from fxstack_functionalize import AotOptions
from fxstack_inductor import InductorOptions
from fxstack_partition import PartitionOptions

_STAGES = {
    "capture": CaptureOptions,
    "functionalize": AotOptions,
    "partition": PartitionOptions,
    "inductor": InductorOptions,
}


@dataclass(frozen=True, slots=True)
class OptionRecord:
    """One option of ``fxstack.compile(options={...})``."""

    stage: str
    name: str
    type: str
    default: str
    meaning: str


def describe_options() -> list[OptionRecord]:
    """Return the options of fxstack's own, by stage."""
    known = set(list_options())
    found = [
        OptionRecord(
            "partition", "partitioner", "str | Callable", "'min_cut'", "A registered name or a callable."
        )
    ]
    for stage, record in _STAGES.items():
        meanings = field_docs(record)
        found += [
            OptionRecord(stage, field.name, str(field.type), _default(field), meanings.get(field.name, ""))
            for field in fields(record)
            if field.name in known
        ]
    return found


def field_docs(record: type) -> dict[str, str]:
    """Return the first paragraph of the string below each field of a dataclass, by the field's name."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(made, ast.ClassDef)
    docs: dict[str, str] = {}
    for field, after in zip(made.body, made.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match after:
                case ast.Expr(ast.Constant(str() as text)):
                    docs[field.target.id] = " ".join(inspect.cleandoc(text).split("\n\n")[0].split())
    return docs


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return repr(field.default)
    return repr(field.default_factory()) if field.default_factory is not MISSING else ""
