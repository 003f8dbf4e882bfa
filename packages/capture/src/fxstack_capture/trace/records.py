"""Records that several parts of a trace exchange."""

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
    """A value from outside that no instruction has loaded. The first load wraps and guards the value.

    A ``DeferredLocal`` is in local slots and cells of interpreted frames. It is on the stack only until a
    following step stores it or passes it on.
    """

    __slots__ = ("source", "value")

    def __init__(self, value: object, source: Source) -> None:
        self.value = value
        self.source = source


class DeferredTuple:
    """A tuple with items that no instruction has loaded.

    Loading the tuple wraps its items. A ``DeferredTuple`` is in the same places as a ``DeferredLocal``.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        """The items: ``DeferredLocal``, ``DeferredTuple`` or objects of the trace."""


@dataclass(frozen=True, slots=True)
class AttributeWrite:
    """The program's assignment ``tensor.name = value``, or ``del tensor.name`` if ``deleted``.

    The replacement code repeats it after the graph (``Replay.prepare_attributes``).
    """

    tensor: torch.Tensor
    name: str
    value: Any
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Construction:
    """The call that constructed ``made``, a tensor of a wrapper subclass.

    If the tensor leaves the frame, the replacement code repeats the call. Attributes that the program set
    later are not part of the call.
    """

    made: torch.Tensor
    function: Callable[..., Any]
    """The function that constructs the tensor, such as ``Tensor._make_wrapper_subclass``."""
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CapturedCode:
    """A finished graph, as ``TorchSide.finish`` returns it."""

    graph_module: GraphModule
    inputs: tuple[Source, ...]
    """The source of each placeholder, in order."""
    example_inputs: tuple[Any, ...]
    """The fake, SymInt or SymFloat of each placeholder."""
    overrides_classes: bool = False
    """Whether inputs or values have classes with ``__torch_function__``.

    If so, the compiled graph runs with ``__torch_function__`` disabled, because the trace has interpreted the
    overrides.
    """
    redefined: tuple[int, ...] = ()
    """Indices into ``inputs`` of tensors whose classes replace methods of torch.

    The graph gets views of them with the plain class.
    """
    overrides_modes: bool = False
    """Whether torch-function modes of the program are active around the call.

    The modes must not see the operators of the graph.
    """
    checkpoints: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Maps a node in a checkpoint to the number of the innermost checkpoint, and to the tag of the node.

    The key is the name of the node. Nodes that compute results of checkpoints have no tag, because the
    partitioner decides about them.
    """
    demands: Callable[[], Iterable[tuple[Source, Check, tuple[tuple[str, int, str], ...]]]] = tuple
    """Returns the current guards on symbolic sizes, as (source, check, user's stack).

    Called after the backend has run. A backend that traces the graph again may add guards.
    """


Blocks = tuple[tuple[int, int], ...]
"""A key for the program's blocks (``with``, ``except``, ``finally``) that receive an error.

Each block is (id of the code object, offset). The innermost block is first.
"""


@dataclass(frozen=True, slots=True)
class TracePlan:
    """How to trace a frame, as decided from the outcomes of its earlier attempts."""

    polyfills: bool = False
    """Whether polyfills replace C code that calls functions of the program. The graph can then break in these
    functions.
    """
    assuming: bool = True
    """Whether the trace may assume that checks of the program pass."""
    ends_at_writes: bool = False
    """Whether graphs with assumptions end at writes to their inputs."""
    unseen: frozenset[Blocks] | None = None
    """If set, the graph ends before a call that may raise because of tensor data.

    The set has groups of blocks that would not notice the error. Calls inside of such a group stay in the
    graph.
    """
    later: frozenset[int] = frozenset()
    """Numbers of the tensor hooks that the replacement code registers after the graph has run.

    Hooks are numbered from 0 in the order in which the program registers them.
    """


@dataclass(frozen=True, slots=True)
class Returned:
    """The root frame returned ``value``, an object of the trace."""

    value: Any


@dataclass(frozen=True, slots=True)
class StoppedFrame:
    """A frame that the trace left at the instruction at ``offset`` of ``code``.

    The last frame has stopped before this instruction. Each earlier frame is inside of this instruction,
    which calls the next frame.
    """

    code: CodeType
    namespace: dict[str, object]
    """The globals of the function."""
    offset: int
    """The offset of the instruction, including its prefixes, in the bytecode of ``code``."""
    stack: tuple[Any, ...]
    """The values on the stack, including ``NULL``. A call instruction has already popped its operands."""
    local_values: dict[str, Any]
    """Local variables by name.

    The value of a variable that was never loaded is a ``DeferredLocal``. An unbound variable is missing.
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
    """Whether the result of the instruction is already on the stack.

    For example, the new object is on the stack while ``__init__`` runs. The return value of the callee is
    then dropped.
    """


@dataclass(frozen=True, slots=True)
class Stopped:
    """The trace stopped before an instruction of the last frame. ``frames`` starts at the root frame."""

    frames: tuple[StoppedFrame, ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """The program raised an exception that left the root frame."""

    exception: BaseException


RootOutcome = Returned | Stopped | Raised
"""How the interpretation of the root frame ended: by an exception, a return, or a stop."""

NOTHING = object()
"""The value of ``Link.made`` if the result of the call is the return value. (None is a possible result.)"""


@dataclass(frozen=True, slots=True)
class Link:
    """Where a resumable call has its result: the callee's return value, or ``made``.

    With ``made``, the callee must return None.
    """

    made: Any = NOTHING
    """The object that the call makes, for example the instance while ``__init__`` runs. Otherwise
    ``NOTHING``.
    """


RETURNED = Link()
"""The link of a resumable call whose result is the return value of the callee."""
