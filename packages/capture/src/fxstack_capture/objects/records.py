"""Records of functions and cells of the program."""

from __future__ import annotations

from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

from fxstack_capture.sources import Source
from fxstack_capture.trace.records import DeferredLocal


@dataclass(frozen=True, slots=True)
class Parts:
    """What a call of a function needs beside its code; ``fn`` keeps its id valid."""

    fn: FunctionType
    defaults: tuple[object, ...]
    kwdefaults: dict[str, object]
    closure: tuple[CellType, ...]


@dataclass(slots=True)
class ProxiedCell:
    """A cell of the program and its proxy; ``lazy`` is what was put into the proxy (None: the cell was empty)."""

    original: CellType
    proxy: CellType
    source: Source
    lazy: DeferredLocal | None
    entered: Any = None
    loaded: bool = False
