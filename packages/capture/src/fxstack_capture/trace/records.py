"""Records that the parts of a trace exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import CellType, CodeType
from typing import Any

import torch
from torch.fx import GraphModule

from fxstack_capture.guards.records import Check
from fxstack_capture.sources import Source


class DeferredLocal:
    """A pre-existing value that no instruction has loaded. The first load wraps and guards the value.

    A ``DeferredLocal`` is only in local slots and cells of interpreted frames, never on the stack or in a
    container.
    """

    __slots__ = ("source", "value")

    def __init__(self, value: object, source: Source) -> None:
        self.value = value
        self.source = source


class DeferredTuple:
    """A tuple with items that no instruction has loaded.

    Loading the tuple wraps its items. The tuple is only in local slots and cells.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        """The items: ``DeferredLocal``, ``DeferredTuple`` or objects of the trace."""


@dataclass(frozen=True, slots=True)
class AttributeWrite:
    """An assignment ``tensor.name = value`` of the program, or ``del tensor.name`` if ``deleted``."""

    tensor: torch.Tensor
    name: str
    value: Any
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Construction:
    """The call that constructed ``made``, a tensor of a wrapper subclass.

    The replacement code repeats the call if the tensor leaves the frame. Attributes that the program set
    afterwards are not part of the call.
    """

    made: torch.Tensor
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CapturedCode:
    """A finished graph. Placeholders correspond to ``inputs``; ``example_inputs`` are fakes and SymInts."""

    graph_module: GraphModule
    inputs: tuple[Source, ...]
    """The source of each placeholder, in order."""
    example_inputs: tuple[Any, ...]
    overrides_classes: bool = False
    """Whether inputs or values have classes with ``__torch_function__``.

    The ``__torch_function__`` must not see the operators of the graph.
    """
    redefined: tuple[int, ...] = ()
    """Indices of inputs whose classes replace methods of torch. The graph gets plain views of them."""
    overrides_modes: bool = False
    """Whether torch-function modes of the program are active around the call.

    The modes must not see the operators of the graph.
    """
    checkpoints: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """The number of the innermost checkpoint and the tag of nodes in checkpoints, by name.

    The graph has no tags at the results of checkpoints, because the partitioner decides about these.
    """
    demands: Callable[[], Iterable[tuple[Source, Check, tuple[tuple[str, int, str], ...]]]] = tuple
    """Returns the present guards on symbolic sizes.

    A backend that traces the graph again may add guards.
    """


Blocks = tuple[tuple[int, int], ...]
"""A key of the blocks of the program (``with``, ``except``, ``finally``) that receive an error."""


@dataclass(frozen=True, slots=True)
class TracePlan:
    """How a frame is traced, as decided from the outcomes of its earlier attempts."""

    polyfills: bool = False
    """Whether polyfills replace C code that calls the program's functions, so that the graph can break there."""
    assuming: bool = True
    """Whether checks of the program may be assumed to pass."""
    ends_at_writes: bool = False
    """Whether graphs with assumptions end at writes to their inputs."""
    unseen: frozenset[Blocks] | None = None
    """If set, graphs end at calls that may raise for tensor data, unless one of these blocks is around the call."""
    later: frozenset[int] = frozenset()
    """The hooks on tensors, by their order, that the replacement code registers after the graph has run."""


@dataclass(frozen=True, slots=True)
class Returned:
    """The root frame returned ``value``, an object of the trace."""

    value: Any


@dataclass(frozen=True, slots=True)
class StoppedFrame:
    """A frame that the trace left before or inside of the instruction at ``offset``.

    The last frame is before its instruction. Each frame above is inside of a call of the next inlined
    frame.
    """

    code: CodeType
    namespace: dict[str, object]
    """The globals of the function."""
    offset: int
    stack: tuple[Any, ...]
    """The values on the stack, and ``NULL``. A call instruction has already popped its operands."""
    local_values: dict[str, Any]
    """Local variables by name.

    A variable that was never loaded has a ``DeferredLocal``. An unbound variable has no key.
    """
    cells: dict[str, CellType]
    """Cells by the names of cell variables and free variables."""
    handling: int
    """Number of exceptions that this frame is handling (0 outside of ``except`` blocks)."""
    handled: BaseException | None = None
    """The innermost exception that this frame is handling."""
    handled_outside: BaseException | None = None
    """The exception that the callers of the frame are handling."""
    made: bool = False
    """Whether the result of the instruction is on the stack.

    The return value of the callee is then dropped.
    """


@dataclass(frozen=True, slots=True)
class Stopped:
    """The trace stopped before an instruction of the last frame. ``frames`` starts at the root frame."""

    frames: tuple[StoppedFrame, ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """The program raised an exception out of the root frame."""

    exception: BaseException


RootOutcome = Returned | Stopped | Raised
"""How the interpretation of the root frame ended."""

NOTHING = object()
"""The value of ``Link.made`` if the result is the return value. None is a possible result."""


@dataclass(frozen=True, slots=True)
class Link:
    """The result of a resumable call: the callee's return value, or ``made`` if the callee returned None."""

    made: Any = NOTHING


RETURNED = Link()
"""The link of a resumable call whose result is the value that the callee returns."""
