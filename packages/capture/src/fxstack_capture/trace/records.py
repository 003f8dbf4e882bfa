"""Records that the parts of a trace hand to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CellType, CodeType
from typing import Any

import torch
from torch.fx import GraphModule

from fxstack_capture.guards.records import Check
from fxstack_capture.sources import Source


class DeferredLocal:
    """A pre-existing value that has not been looked at: it enters the world (and is guarded) when first loaded.

    Lives only in local slots and cells of interpreted frames, never on the stack or inside containers.
    """

    __slots__ = ("source", "value")

    def __init__(self, value: object, source: Source) -> None:
        self.value = value
        self.source = source


class DeferredTuple:
    """A tuple of values that have not been looked at, or not all. Lives where ``DeferredLocal`` does."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts


@dataclass(frozen=True, slots=True)
class AttributeWrite:
    """``tensor.name = value``, or ``del tensor.name`` where ``deleted``, that the program did."""

    tensor: torch.Tensor
    name: str
    value: Any
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Construction:
    """The call that made a wrapper subclass without its attributes."""

    made: torch.Tensor
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CapturedCode:
    """A finished graph: placeholders correspond to ``inputs``; ``example_inputs`` are fakes and SymInts."""

    graph_module: GraphModule
    inputs: tuple[Source, ...]
    example_inputs: tuple[Any, ...]
    overrides_classes: bool = False
    """Whether tensors of classes with a ``__torch_function__`` take part, which must not see the graph's operators."""
    redefined: tuple[int, ...] = ()
    """Inputs whose classes have methods in place of torch's: the graph gets plain views of them."""
    overrides_modes: bool = False
    """Whether modes of the program are on around the call, which must not see them either."""
    demands: Callable[[], Iterable[tuple[Source, Check, tuple[tuple[str, int, str], ...]]]] = tuple
    """What is demanded of symbolic sizes by now; a backend that traces the graph again may demand more than capture."""


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any


@dataclass(frozen=True, slots=True)
class StoppedFrame:
    """A frame just before instruction ``offset``, or in the middle of it when that calls the next inlined frame.

    ``stack`` may hold ``interpreter.values.NULL``; what the instruction that calls has taken is gone from it.
    ``local_values`` maps names to values (Lazy where never loaded; unbound names are absent). ``cells`` maps the
    names of cell and free variables to cells. ``handling`` is the number of exceptions being handled in this frame
    (0 outside of ``except`` blocks), ``handled`` the innermost exception being handled, ``handled_outside`` that
    of its callers. ``made``: the instruction's result is not what the callee returns but lies on the stack already.
    """

    code: CodeType
    namespace: dict[str, object]
    offset: int
    stack: tuple[Any, ...]
    local_values: dict[str, Any]
    cells: dict[str, CellType]
    handling: int
    handled: BaseException | None = None
    handled_outside: BaseException | None = None
    made: bool = False


@dataclass(frozen=True, slots=True)
class Stopped:
    """The trace stands before an instruction of the last of ``frames``; the others, from the root on, are its callers."""

    frames: tuple[StoppedFrame, ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """The program raised out of the root frame."""

    exception: BaseException


RootOutcome = Returned | Stopped | Raised

NOTHING = object()


@dataclass(frozen=True, slots=True)
class Link:
    """How the result of a resumable call comes to be: the callee's, or ``made`` where the callee returned None."""

    made: Any = NOTHING


RETURNED = Link()
