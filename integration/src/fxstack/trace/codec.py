"""Events as JSON and back, and their JSON schema: all three follow from the record classes."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from fxstack.trace.records import VERSION, Body, Event, Started

KINDS: Final = {kind.__name__: kind for kind in get_args(Body)}
_PLAIN: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


class TraceError(ValueError):
    """A file is no record of this version; the message names the file and the line."""


class TraceVersionError(TraceError):
    """A file is a record of another version."""


def to_line(event: Event) -> str:
    """Return an event as one line of JSON."""
    content = {"kind": type(event.body).__name__, "time": round(event.time, 6), "thread": event.thread}
    return json.dumps({**content, **asdict(event.body)}, separators=(",", ":"), allow_nan=False) + "\n"


def from_line(text: str | bytes, where: str) -> Event:
    """Return the event of a line.

    Raises:
        TraceError: the line is no event of this version. A line of another version raises the subclass
            ``TraceVersionError``.
    """
    try:
        content = json.loads(text)
        kind = KINDS[content.pop("kind")]
        time, thread = content.pop("time"), content.pop("thread")
        version = content.get("version", VERSION) if kind is Started else VERSION
        if version == VERSION:
            return Event(_read(float, time), _read(str, thread), _read(kind, content))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        msg = f"{where}: no event of a record: {type(error).__name__}: {str(error)[:200]}"
        raise TraceError(msg) from error
    msg = f"{where}: version {version!r}; this fxstack reads version {VERSION}"
    raise TraceVersionError(msg)


def _read(kind: Any, value: Any) -> Any:
    """Convert JSON to ``kind``: a record class, a tuple, or a plain type.

    Raise ValueError or TypeError if it does not fit.
    """
    if is_dataclass(kind) and isinstance(kind, type):
        types = _types(kind)
        if value.keys() != types.keys():
            raise ValueError(f"{kind.__name__} has fields {sorted(value)}, not {sorted(types)}")
        return kind(**{name: _read(of, value[name]) for name, of in types.items()})
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise TypeError(f"a list was expected, not {value!r:.50}")
        return tuple(_read(get_args(kind)[0], item) for item in value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{kind.__name__} was expected, not {value!r:.50}")
    return value


@cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of one line of a record."""
    lines = [_schema_of_kind(name, kind) for name, kind in KINDS.items()]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"fxstack trace {VERSION}"}
    return {**head, "oneOf": lines}


def _schema_of_kind(name: str, kind: type) -> dict[str, Any]:
    """Return the schema of one line of the record: the fields of the body, and kind, time and thread."""
    schema_of_kind = _schema_of(kind)
    schema_of_kind["properties"] |= {
        "kind": {"const": name},
        "time": {"type": "number"},
        "thread": {"type": "string"},
    }
    schema_of_kind["required"] = ["kind", "time", "thread", *schema_of_kind["required"]]
    return schema_of_kind


def _schema_of(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type: a tuple, a record class or a plain type."""
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _schema_of(get_args(kind)[0])}
    if not is_dataclass(kind):
        return {"type": _PLAIN[kind]}
    assert isinstance(kind, type)
    assert not isinstance(kind, UnionType)
    described = " ".join((kind.__doc__ or "").split())
    return {
        "type": "object",
        "description": described,
        "properties": {name: _schema_of(of) for name, of in _types(kind).items()},
        "required": [field.name for field in fields(kind)],
        "additionalProperties": False,
    }
