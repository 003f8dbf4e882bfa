"""Node metadata as JSON: one pair of functions per documented key encodes and decodes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
from torch.fx.experimental.symbolic_shapes import CallMethodKey, ConvertIntKey, DivideByKey, InnerTensorKey

from fxstack_interchange.format.encoding.values import describe, rebuild
from fxstack_interchange.format.errors import LoadError, SaveError
from fxstack_interchange.format.metadata import RECOMPUTE_TAGS, SAVED_KEYS, recompute_tag
from fxstack_interchange.format.symbols import SymbolTable
from fxstack_interchange.torch_compat import MappingKey, SequenceKey


@dataclass(frozen=True)
class _Codec:
    """The encoder and the decoder of one metadata key."""

    write: Callable[[Any], Any]
    read: Callable[[Any, SymbolTable], Any]


def encode_meta(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the documented metadata of a node as JSON, without other keys."""
    return {key: _CODECS[key].write(meta[key]) for key in SAVED_KEYS if meta.get(key) is not None} | (
        {"val": None} if "val" in meta and meta["val"] is None else {}
    )


def decode_meta(record: dict[str, Any], table: SymbolTable) -> dict[str, Any]:
    """Return the metadata, by key, that ``record`` encodes.

    Raises:
        LoadError: a key is not documented, or its content is malformed.
    """
    unknown = sorted(record.keys() - set(SAVED_KEYS))
    if unknown:
        raise LoadError(f"unknown metadata key {unknown[0]!r}; the list is closed")
    try:
        return {key: _CODECS[key].read(record[key], table) for key in SAVED_KEYS if key in record}
    except (TypeError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, LoadError):
            raise
        raise LoadError(f"malformed metadata: {error}") from error


def type_name(value: object) -> str:
    """Return the qualified name of a class or function, for example ``torch.nn.modules.linear.Linear``.

    Return a string unchanged.
    """
    if isinstance(value, str):
        return value
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return f"{module}.{name}" if module and name else str(value)


def _text(value: object, *_table: object) -> str:
    """Return ``value`` if it is a text. Raise LoadError for any other value."""
    if not isinstance(value, str):
        raise LoadError(f"expected text, found {value!r:.100}")
    return value


def _write_modules(stack: Any) -> list[list[str]]:
    return [[str(key), str(path), type_name(cls)] for key, (path, cls) in stack.items()]


def _read_modules(record: Any, _table: SymbolTable) -> dict[str, tuple[str, str]]:
    return {_text(key): (_text(path), _text(cls)) for key, path, cls in record}


def _write_sources(stack: Any) -> list[list[str]]:
    return [[str(name), type_name(target)] for name, target in stack]


def _read_sources(record: Any, _table: SymbolTable) -> list[tuple[str, str]]:
    return [(_text(name), _text(target)) for name, target in record]


def _write_tag(tag: object) -> str:
    """Return the recompute tag in lower case, for example ``must_save``. Raise SaveError for an unknown tag."""
    text = str(recompute_tag(tag))
    if text not in RECOMPUTE_TAGS:
        raise SaveError(f"recompute tag {tag!r} is not one of {', '.join(RECOMPUTE_TAGS)}")
    return text


def _read_tag(record: object, _table: SymbolTable) -> str:
    """Return a recompute tag of a file. Raise LoadError for an unknown tag."""
    if record not in RECOMPUTE_TAGS:
        raise LoadError(f"unknown recompute tag {record!r:.100}")
    return recompute_tag(record)


_STEPS: dict[type, tuple[str, str | None]] = {
    SequenceKey: ("sequence", "idx"),
    MappingKey: ("mapping", "key"),
    CallMethodKey: ("call_method", "name"),
    InnerTensorKey: ("inner_tensor", "inner_name"),
    DivideByKey: ("divide_by", "divisor"),
    ConvertIntKey: ("convert_int", None),
}


def _write_bindings(bindings: Any) -> list[Any]:
    return [[str(symbol), [_write_step(step) for step in path]] for symbol, path in bindings.items()]


def _write_step(step: object) -> list[Any]:
    """Return the record of one step on the path to an unbacked symbol, for example of an index into a result."""
    if type(step) not in _STEPS:
        raise SaveError(f"the path step {step!r} of an unbacked symbol has no form in the format")
    kind, attribute = _STEPS[type(step)]
    return [kind, describe(getattr(step, attribute)) if attribute else None]


def _read_bindings(record: Any, table: SymbolTable) -> dict[sympy.Symbol, tuple[Any, ...]]:
    """Return the metadata ``unbacked_bindings``: symbol that the node binds -> path from the node's value to
    the symbol.
    """
    return {table.expression(name): tuple(_read_step(step, table) for step in path) for name, path in record}


def _read_step(record: Any, table: SymbolTable) -> Any:
    """Return one step of the path from a node's value to an unbacked symbol."""
    kind, content = record
    for cls, (name, attribute) in _STEPS.items():
        if name == kind:
            return cls(rebuild(content, table)) if attribute else cls()
    raise LoadError(f"unknown path step {kind!r:.100} of an unbacked symbol")


_CODECS: dict[str, _Codec] = {
    "val": _Codec(describe, rebuild),
    "stack_trace": _Codec(str, _text),
    "nn_module_stack": _Codec(_write_modules, _read_modules),
    "source_fn_stack": _Codec(_write_sources, _read_sources),
    "original_name": _Codec(str, _text),
    "recompute": _Codec(_write_tag, _read_tag),
    "unbacked_bindings": _Codec(_write_bindings, _read_bindings),
}
