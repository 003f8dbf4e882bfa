"""Validates a document against the JSON Schema that ships with the package.

The validator implements only the keywords that ``schema.json`` uses. A test compares it with a full
implementation. The reader validates the structure of a document before it builds any object.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from fxstack_interchange.format.errors import LoadError

_TYPES: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


@cache
def document_schema() -> dict[str, Any]:
    """Return the schema of format version 1.1."""
    text = files("fxstack_interchange.format").joinpath("schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def check_document(document: object) -> None:
    """Check the structure of a document.

    Raises:
        LoadError: the structure is wrong. The text names the place and the expected content.
    """
    schema = document_schema()
    _check(document, schema, schema, "document")


def _fail(where: str, problem: str) -> LoadError:
    return LoadError(f"malformed file: {where} {problem}")


def _check(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str) -> None:
    """Raise LoadError at the first place where ``value`` does not fit ``schema``.

    ``where``: the path to the value, for example ``document.stage``. ``root``: the whole schema, which has the
    definitions that ``$ref`` names.
    """
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return _check(value, root["$defs"][name], root, where)
    if "type" in schema and not _has_type(value, schema["type"]):
        raise _fail(where, f"must be {schema['type']}, found {type(value).__name__}")
    if "enum" in schema and value not in schema["enum"]:
        raise _fail(where, f"is {value!r:.100}, must be one of {', '.join(map(str, schema['enum']))}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        raise _fail(where, f"is {value!r:.100}, which does not match {schema['pattern']}")
    if isinstance(value, dict):
        _check_object(value, schema, root, where)
    if isinstance(value, list):
        _check_array(value, schema, root, where)
    return None


def _has_type(value: object, names: str | list[str]) -> bool:
    return any(_is(value, name) for name in ([names] if isinstance(names, str) else names))


def _is(value: object, name: str) -> bool:
    """Whether a value has the JSON type ``name``. True and False are no numbers."""
    if name in ("integer", "number"):
        kinds = (int,) if name == "integer" else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool)
    return isinstance(value, _TYPES[name])


def _check_object(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], where: str) -> None:
    """Check the keys of a JSON object, then the value of each key."""
    for key in schema.get("required", ()):
        if key not in value:
            raise _fail(where, f"lacks {key!r}")
    properties = schema.get("properties", {})
    rest = schema.get("additionalProperties", True)
    for key, item in value.items():
        inner = f"{where}.{key:.100}"
        if key in properties:
            _check(item, properties[key], root, inner)
        elif rest is False:
            raise _fail(where, f"has the unknown key {key!r:.100}")
        elif isinstance(rest, dict):
            _check(item, rest, root, inner)


def _check_array(value: list[Any], schema: dict[str, Any], root: dict[str, Any], where: str) -> None:
    """Check the length of a JSON array, then each element."""
    if len(value) < schema.get("minItems", 0):
        raise _fail(where, f"has {len(value)} elements, needs at least {schema['minItems']}")
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        raise _fail(where, f"has {len(value)} elements, at most {schema['maxItems']} are allowed")
    if "items" in schema:
        for index, item in enumerate(value):
            _check(item, schema["items"], root, f"{where}[{index}]")
