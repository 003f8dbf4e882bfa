"""``TracerProtocol``: what the parts of ``torch_side`` use of the tracer that they are parts of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from fxstack_capture.sources import Source
from fxstack_capture.torch_side.fakes.fake_mode import CaptureFakeMode
from fxstack_capture.torch_side.fakes.faker import Faker
from fxstack_capture.torch_side.global_state.state import StateLog
from fxstack_capture.torch_side.numbers.symbols import Symbols
from fxstack_capture.torch_side.recording.graph import GraphBuilder
from fxstack_capture.torch_side.subclasses.levels import Level
from fxstack_capture.trace.parts import Arrays, AssumedTruths
from fxstack_capture.trace.seams import TorchSide
from fxstack_capture.trace.state import Trace


class OverridesProtocol(Protocol):
    def as_subclass(self, tensor: torch.Tensor, cls: type) -> torch.Tensor:
        """``tensor.as_subclass(cls)``: a view of everything, of another class."""

    def at(self, level: Level) -> AbstractContextManager[None]:
        """Inside, less is on."""

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that ``concern``s somebody."""

    def concern(self, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether somebody may want to see this call."""

    def handle(
        self, func: Callable[..., Any], relevant: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """``torch.overrides.handle_torch_function``."""

    @property
    def has_classes(self) -> bool:
        """Whether there are tensors of users' classes in the trace."""

    @property
    def level(self) -> Level: ...

    def make_subclass(self, cls: type, data: torch.Tensor) -> torch.Tensor:
        """``torch.Tensor._make_subclass(cls, data)``: detached, of another class."""

    @property
    def modes(self) -> list[Any]:
        """The program's modes in terms of the trace, innermost last."""

    def overriding(self, values: Sequence[Any]) -> bool:
        """``torch.overrides.has_torch_function``."""


class TransformsProtocol(Protocol):
    def concern(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether a call is to run below layers, or on what they left behind (``vjp`` is differentiated afterwards)."""

    def enter_dual(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def exit_dual(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    @property
    def inside(self) -> bool: ...

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``fn`` for real; raises the program's exception, or GraphBreak: then plain Python finds the exact one."""


class WrappersProtocol(Protocol):
    def asks(self, value: object) -> bool:
        """Whether torch would call a ``__torch_function__`` of the program for a value: a wrapper that is asked."""

    def construct(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        """``torch.Tensor._make_wrapper_subclass``."""

    @property
    def count(self) -> int:
        """How many the program has made."""

    def demand_unshared(self, storage: int) -> None:
        """Break the graph where a wrapper from outside, or what is inside of one, is written to."""

    def demand_unused(self, tensor: torch.Tensor, name: str) -> None:
        """Break the graph where an attribute of a wrapper changes that an operator of the graph has seen."""

    @property
    def used(self) -> bool:
        """Whether there are any in the trace."""


class AssumptionsProtocol(AssumedTruths, Protocol):
    @property
    def may_assert(self) -> bool:
        """Whether these nodes become a nested graph, which can hold assertions."""

    def none_inside(self, *, nested: bool) -> AbstractContextManager[None]:
        """Around code whose nodes do not stay in the graph; ``nested``: they become a graph of their own."""

    @property
    def region(self) -> torch.fx.Node | None:
        """The node behind which the code begins whose nodes do not stay in the graph; None outside of such code."""


class ArraysProtocol(Arrays, Protocol):
    @property
    def active(self) -> bool:
        """Whether a function of ``torch._numpy`` is running, under which torch has other defaults."""

    def to_tensor(self, array: Any) -> torch.Tensor:
        """``torch.from_numpy``: another tensor over the same memory."""


class RegionsProtocol(Protocol):
    def enter(self, region: Any) -> None: ...

    def leave(self) -> None: ...

    @property
    def open(self) -> list[Any]: ...

    @property
    def outer(self) -> bool: ...


class HooksProtocol(Protocol):
    def add(self, node: torch.fx.Node, tensor: torch.Tensor) -> Any: ...

    def close(self, outputs: Sequence[object]) -> None:
        """Drop the nodes of hooks that were removed; GraphBreak where a tensor with a hook leaves the graph."""


class CopiesProtocol(Protocol):
    def is_first(self, tensor: torch.Tensor, memo: dict[Any, Any]) -> bool:
        """Whether the copy has not met this memory yet; it has from now on."""


class SelectionProtocol(AbstractContextManager[object], Protocol):
    def tag(self, node: torch.fx.Node) -> None:
        """Tag a node with what the policy says about the operators of its call."""


class TracerProtocol(TorchSide, Protocol):
    @property
    def overrides(self) -> OverridesProtocol: ...

    @property
    def transforms(self) -> TransformsProtocol: ...

    @property
    def wrappers(self) -> WrappersProtocol: ...

    @property
    def assumptions(self) -> AssumptionsProtocol: ...

    @property
    def arrays(self) -> ArraysProtocol: ...

    @property
    def regions(self) -> RegionsProtocol: ...

    @property
    def hooks(self) -> HooksProtocol: ...

    @property
    def copies(self) -> CopiesProtocol: ...

    selection: SelectionProtocol | None
    choosing: bool
    busy: bool
    differentiated: bool
    overriding: dict[Callable[..., Any], Callable[..., Any]]

    @property
    def trace(self) -> Trace: ...

    @property
    def builder(self) -> GraphBuilder: ...

    @property
    def mode(self) -> CaptureFakeMode: ...

    @property
    def faker(self) -> Faker: ...

    @property
    def symbols(self) -> Symbols: ...

    @property
    def state(self) -> StateLog: ...

    unwritable: set[int]
    steps: dict[torch.fx.Node, int]

    def record(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``fn`` on fakes and write it down, unless its result is plain data that tracing knows."""

    def call_plainly(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that no ``__torch_function__`` of the program sees."""

    def original_of(self, tensor: torch.Tensor) -> tuple[torch.Tensor | None, Source | None]:
        """The real tensor that a fake stands for, and where it was found."""

    def attributes_of(self, tensor: torch.Tensor) -> dict[str, Any]:
        """What the program assigned to a fake, by name."""

    def annotate(self, node: torch.fx.Node) -> None:
        """Say where in the program a node comes from."""

    def inputs(self) -> list[tuple[torch.Tensor, torch.Tensor, Source]]:
        """(fake, real tensor, source) of everything that entered."""

    def guard_offsets(self) -> None:
        """From now on the trace depends on the storage offsets of its inputs."""

    def guard_offset(self, real: torch.Tensor, source: Source) -> None:
        """The trace depends on the storage offset of this input."""

    def record_effect(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Write down a call that has been carried out already and gives nothing."""

    def leave_as(self, tensor: torch.Tensor, finish: Callable[..., torch.Tensor]) -> None:
        """What plain code has to do to a tensor when it leaves the graph."""

    def all_bound(self) -> None:
        """The symbols that the last operator made have nodes."""

    def note_mutated(self, tensor: torch.Tensor, added: float | None = None) -> None:
        """``tensor`` was written to; ``added``: to each of its numbers, where that is all."""

    def enter_drawn(self, example: torch.Tensor, source: Source) -> torch.Tensor:
        """The fake of a tensor like ``example`` that the frame makes before everything else: no guard speaks of it."""
