"""Node arguments as JSON: one pair of functions per type encodes and decodes them.

JSON null, booleans, integers, strings and arrays (lists) represent themselves. Every other value is an object
with one key, the tag of its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from fxstack_interchange.format.encoding.targets import name_of, resolve
from fxstack_interchange.format.encoding.values import dtype_name, parse_device, parse_dtype, parse_float
from fxstack_interchange.format.errors import LoadError, SaveError
from fxstack_interchange.format.expressions import to_text
from fxstack_interchange.format.symbols import SymbolTable

MAX_DEPTH = 64


@dataclass(frozen=True)
class Reading:
    """The inputs of a decoder: the nodes decoded so far, and the symbols."""

    nodes: Mapping[str, Node]
    """The nodes by name."""
    table: SymbolTable | None
    """None if the file must not have symbolic numbers."""

    @property
    def symbols(self) -> SymbolTable:
        """The symbols of the graph. Raises LoadError if the file must not have symbolic numbers."""
        if self.table is None:
            raise LoadError(
                "the argument is a symbolic number, but only arguments of a graph may be symbolic"
            )
        return self.table


_NOTHING = Reading({}, None)


@dataclass(frozen=True)
class Codec:
    """The encoding of the values of some types: a tag, an encoder of the content, and a decoder."""

    tag: str
    types: tuple[type, ...]
    encode: Callable[[Any], Any]
    decode: Callable[[Any, Reading, int], Any]


def _decode_list_as(make: Callable[[list[Any]], Any]) -> Callable[[Any, Reading, int], Any]:
    """Return a decoder of a list that passes the decoded items to ``make``."""

    def decode_items(content: object, reading: Reading, depth: int) -> Any:
        """Decode each item, one level deeper. Raise LoadError unless ``content`` is a list."""
        if not isinstance(content, list):
            raise LoadError(f"expected a list, found {content!r:.100}")
        return make([decode(item, reading, depth + 1) for item in content])

    return decode_items


def _encode_items(value: Any) -> list[Any]:
    return [encode(item) for item in value]


def _encode_set(value: Any) -> list[Any]:
    # The order of a set depends on hashes; the same graph must give the same bytes.
    return sorted((encode(item) for item in value), key=repr)


def _node(content: object, reading: Reading, _depth: int) -> Node:
    """Return the node that an argument names. Raise LoadError if no earlier node has this name."""
    if not isinstance(content, str) or content not in reading.nodes:
        raise LoadError(
            f"an argument refers to node {content!r:.100}, which is not defined before it "
            "(a forward reference, a cycle, or a missing node)"
        )
    return reading.nodes[content]


def _dict(content: object, reading: Reading, depth: int) -> dict[Any, Any]:
    """Return a dict from a list of pairs of encoded keys and values. Raise LoadError for other content."""
    if not isinstance(content, list) or not all(isinstance(p, list) and len(p) == 2 for p in content):
        raise LoadError("a dict must be a list of pairs")
    try:
        return {decode(k, reading, depth + 1): decode(v, reading, depth + 1) for k, v in content}
    except TypeError as error:
        raise LoadError("a dict has an unhashable key") from error


def _member(kind: type, names: Mapping[str, Any]) -> Callable[[Any, Reading, int], Any]:
    """Return a decoder of a name in ``names``, for example a dtype. ``kind`` is for the error text."""

    def find(content: object, _reading: Reading, _depth: int) -> Any:
        """Return the object with the name ``content``. Raise LoadError if there is none."""
        if not isinstance(content, str) or content not in names:
            raise LoadError(f"unknown {kind.__name__} {content!r:.100}")
        return names[content]

    return find


def _short(value: object) -> str:
    return str(value).removeprefix("torch.")


def _torch_members(kind: type) -> dict[str, Any]:
    return {_short(v): v for v in vars(torch).values() if isinstance(v, kind)}


def _complex(content: object, _reading: Reading, _depth: int) -> complex:
    """Return a complex number from its two parts, which are texts."""
    if not isinstance(content, list) or len(content) != 2:
        raise LoadError(f"malformed complex number {content!r:.100}")
    return complex(parse_float(content[0]), parse_float(content[1]))


def _slice(parts: list[Any]) -> slice:
    """Return a slice from its decoded start, stop and step. Raise LoadError for another number of parts."""
    if len(parts) != 3:
        raise LoadError("a slice has three parts")
    return slice(*parts)


def _range(parts: list[Any]) -> range:
    """Return a range from its decoded start, stop and step. Raise LoadError unless these are three integers."""
    if len(parts) != 3 or not all(isinstance(part, int) for part in parts) or parts[2] == 0:
        raise LoadError("a range has three integers, the last not zero")
    return range(*parts)


CODECS: tuple[Codec, ...] = (
    Codec("node", (Node,), lambda v: v.name, _node),
    Codec("symint", (torch.SymInt,), lambda v: to_text(v.node.expr), lambda c, r, _: r.symbols.integer(c)),
    Codec(
        "symfloat", (torch.SymFloat,), lambda v: to_text(v.node.expr), lambda c, r, _: r.symbols.floating(c)
    ),
    Codec("symbool", (torch.SymBool,), lambda v: to_text(v.node.expr), lambda c, r, _: r.symbols.boolean(c)),
    Codec("float", (float,), lambda v: repr(float(v)), lambda c, _r, _d: parse_float(c)),
    Codec("complex", (complex,), lambda v: [repr(v.real), repr(v.imag)], _complex),
    Codec("size", (torch.Size,), _encode_items, _decode_list_as(torch.Size)),
    Codec("tuple", (tuple,), _encode_items, _decode_list_as(tuple)),
    Codec("set", (set,), _encode_set, _decode_list_as(set)),
    Codec("frozenset", (frozenset,), _encode_set, _decode_list_as(frozenset)),
    Codec("dict", (Mapping,), lambda v: [[encode(k), encode(x)] for k, x in v.items()], _dict),
    Codec("slice", (slice,), lambda v: _encode_items((v.start, v.stop, v.step)), _decode_list_as(_slice)),
    Codec("range", (range,), lambda v: [v.start, v.stop, v.step], _decode_list_as(_range)),
    Codec("ellipsis", (type(Ellipsis),), lambda _v: True, lambda _c, _r, _d: Ellipsis),
    Codec("dtype", (torch.dtype,), dtype_name, lambda c, _r, _d: parse_dtype(c)),
    Codec("device", (torch.device,), str, lambda c, _r, _d: parse_device(c)),
    Codec("layout", (torch.layout,), _short, _member(torch.layout, _torch_members(torch.layout))),
    Codec(
        "memory_format",
        (torch.memory_format,),
        _short,
        _member(torch.memory_format, _torch_members(torch.memory_format)),
    ),
)
"""``encode`` tries the codecs in order. The first codec whose types match encodes the value."""

_BY_TAG = {codec.tag: codec for codec in CODECS}


def encode(value: object) -> Any:
    """Return an argument as JSON.

    Raises:
        SaveError: the format has no encoding for the argument's type.
    """
    if value is None or isinstance(value, bool | str):
        return value
    # A member of an IntEnum is an int too, but JSON would lose its class.
    if isinstance(value, int) and type(value).__module__ == "builtins":
        return value
    if isinstance(value, list):
        return _encode_items(value)
    for codec in CODECS:
        if isinstance(value, codec.types):
            return {codec.tag: codec.encode(value)}
    if callable(value):
        return {"target": name_of(value)}
    raise SaveError(f"an argument of type {type(value).__qualname__} has no form in the format")


def decode_constant(record: object) -> Any:
    """Return the argument that ``record`` encodes. It must not contain nodes or symbols.

    Raises:
        LoadError: ``record`` is malformed, or refers to a node or symbol.
    """
    return decode(record, _NOTHING)


def decode(record: object, reading: Reading, depth: int = 0) -> Any:
    """Return the argument that ``record`` encodes.

    Raises:
        LoadError: ``record`` is malformed, nested too deep, or refers to a node that is not decoded yet.
    """
    if depth > MAX_DEPTH:
        raise LoadError(f"an argument is nested deeper than {MAX_DEPTH}")
    if record is None or isinstance(record, bool | int | str):
        return record
    if isinstance(record, list):
        return [decode(item, reading, depth + 1) for item in record]
    if not isinstance(record, dict) or len(record) != 1:
        raise LoadError(f"malformed argument {record!r:.100}")
    ((tag, content),) = record.items()
    if tag == "target":
        if (function := resolve(content)) is getattr:
            raise LoadError("the function getattr is no argument: another function could call it")
        return function
    if tag not in _BY_TAG:
        raise LoadError(f"unknown kind of argument {tag!r:.100}")
    return _BY_TAG[tag].decode(content, reading, depth)
