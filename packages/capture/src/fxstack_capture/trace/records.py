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
    """An assignment ``tensor.name = value`` of the program, or ``del tensor.name`` if ``deleted``.

    The replacement code repeats it after the graph (``Replay.prepare_attributes``).
    """

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
    """The maker, such as ``Tensor._make_wrapper_subclass``."""
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


@dataclass(frozen=True, slots=True)
class CapturedCode:
    """A finished graph, as ``TorchSide.finish`` returns it."""

    graph_module: GraphModule
    inputs: tuple[Source, ...]
    """The source of each placeholder, in order."""
    example_inputs: tuple[Any, ...]
    """The fake, or the SymInt or SymFloat, of each placeholder."""
    overrides_classes: bool = False
    """Whether inputs or values have classes with ``__torch_function__``.

    The compiled graph then runs with ``__torch_function__`` off, because the trace has interpreted it already.
    """
    redefined: tuple[int, ...] = ()
    """Indices into ``inputs`` of tensors whose classes replace methods of torch.

    The graph gets plain views of them.
    """
    overrides_modes: bool = False
    """Whether torch-function modes of the program are active around the call.

    The modes must not see the operators of the graph.
    """
    checkpoints: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """By the name of a node in a checkpoint: the number of the innermost checkpoint, and the tag of the node.

    The graph has no tags at the results of checkpoints, because the partitioner decides about these.
    """
    demands: Callable[[], Iterable[tuple[Source, Check, tuple[tuple[str, int, str], ...]]]] = tuple
    """Returns the present guards on symbolic sizes: source, check and the user's stack.

    Called after the backend has run, since a backend that traces the graph again may add guards.
    """


Blocks = tuple[tuple[int, int], ...]
"""A key of the program's blocks (``with``, ``except``, ``finally``) that receive an error.

Each block is (id of the code object, offset), innermost first.
"""


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
    """If set, the graph ends before a call that may raise for tensor data.

    Calls inside of one of these groups of blocks, which would not notice the error, stay in the graph.
    """
    later: frozenset[int] = frozenset()
    """Numbers of hooks on tensors, in the order in which the program registers them, from 0.

    The replacement code registers these hooks after the graph has run.
    """


@dataclass(frozen=True, slots=True)
class Returned:
    """The root frame returned ``value``, an object of the trace."""

    value: Any


@dataclass(frozen=True, slots=True)
class StoppedFrame:
    """A frame that the trace left before or inside of the instruction at ``offset`` of ``code``.

    The last frame is before its instruction. Each earlier frame is inside of an instruction that calls the next
    frame.
    """

    code: CodeType
    namespace: dict[str, object]
    """The globals of the function."""
    offset: int
    """The offset of the instruction in the bytecode of ``code``, prefixes included."""
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
    """Whether the result of the instruction is already on the stack, as a new object is while ``__init__`` runs.

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
    """How a resumable call gives its result: as the callee's return value, or as ``made`` if the callee must
    return None.
    """

    made: Any = NOTHING
    """The object that the call makes, for example the instance while ``__init__`` runs; else ``NOTHING``."""


RETURNED = Link()
"""The link of a resumable call whose result is the value that the callee returns."""
