"""Records of functions and cells of the program."""

from __future__ import annotations

from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

from fxstack_capture.sources import Source
from fxstack_capture.trace.records import DeferredLocal


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a function that a call needs beside the code.

    ``fn`` keeps the id of the function valid.
    """

    fn: FunctionType
    defaults: tuple[object, ...]
    kwdefaults: dict[str, object]
    closure: tuple[CellType, ...]


@dataclass(slots=True)
class ProxiedCell:
    """A cell of the program and its proxy.

    ``lazy`` is the proxy's first content, or None for an empty cell.
    """

    original: CellType
    proxy: CellType
    source: Source
    lazy: DeferredLocal | None
    entered: Any = None
    loaded: bool = False
