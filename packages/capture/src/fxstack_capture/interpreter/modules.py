"""Node metadata: the modules whose ``forward`` calls an operation, with their paths."""

from __future__ import annotations

from collections.abc import Sequence
from types import CellType, CodeType
from typing import Any

import torch

from fxstack_capture.sources import FreeCell, Globals, InstanceAttr, Item, Key, Local, Source
from fxstack_capture.trace.records import DeferredLocal
from fxstack_capture.trace.state import Objects

ModuleStack = dict[str, tuple[str, str]]
"""Maps the expression of a module to its path and the qualified name of its class. The outermost module is
first.
"""


def with_module(outer: ModuleStack, code: CodeType, fast: Sequence[Any], objects: Objects) -> ModuleStack:
    """Return ``outer`` with the frame's own module added, if the frame runs the ``forward`` of a module.

    ``outer`` are the modules of the caller. ``fast`` are the frame's local slots; the first holds the module.
    The metadata needs no guards, because only people and policies read it.
    """
    if code.co_name != "forward" or not code.co_argcount:
        return outer
    module, source = _value_and_source(fast[0], objects)
    if not issubclass(type(module), torch.nn.Module):
        return outer
    kind = type(module)
    name = f"{kind.__module__}.{kind.__qualname__}"
    described = (path_of(source), source.name) if source is not None else ("", f"<new {name}>")
    return {**outer, described[1]: (described[0], name)}


def _value_and_source(value: object, objects: Objects) -> tuple[object, Source | None]:
    """Return the value of a local variable and its source.

    The variable may be deferred. The source is None for an object made in the trace.
    """
    if type(value) is CellType:
        try:
            value = value.cell_contents
        except ValueError:
            return None, None
    if type(value) is DeferredLocal:
        return value.value, value.source
    return value, objects.source_of(value)


def path_of(source: Source) -> str:
    """Return the path of a module in the outermost ``self``, as ``named_modules`` returns it, for example
    ``layers.0``.

    If the outermost module is in another variable, the path begins with the name of this variable.
    """
    parts: list[str] = []
    at: Source | None = source
    while at is not None:
        match at:
            case Local(local="self") | InstanceAttr(attr="_modules" | "_buffers" | "_parameters"):
                pass
            case Key(key=str(key)) | InstanceAttr(attr=key) | Local(local=key) | FreeCell(local=key):
                parts.append(key)
            case Item(index=index):
                parts.append(str(index))
            case Globals():
                break
            case _ if at.base is None:
                parts.append(at.name)
        at = at.base
    return ".".join(reversed(parts))
