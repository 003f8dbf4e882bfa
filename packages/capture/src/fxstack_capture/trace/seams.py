"""Protocols of the torch side and of the interpreter: what they offer to the other parts of a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import CodeType, FunctionType
from typing import Any, Protocol

import torch

from fxstack_capture.shapes.geometry import Geometry
from fxstack_capture.shapes.history import FrameHistory
from fxstack_capture.sources import Source
from fxstack_capture.trace.parts import Arrays, AssumedTruths, TorchNames
from fxstack_capture.trace.records import (
    AttributeWrite,
    CapturedCode,
    Construction,
    DeferredLocal,
    Link,
    RootOutcome,
)


class TorchSide(Protocol):
    """Tensors, symbolic numbers, the FX graph (subpackage ``torch_side``)."""

    @property
    def arrays(self) -> Arrays:
        """NumPy arrays of the trace."""

    @property
    def names(self) -> TorchNames:
        """What of torch's own names the trace relies on."""

    attribute_writes: list[AttributeWrite]
    """What the program assigned to attributes of tensors, in order."""

    mutated_storages: set[int]
    """Addresses of the memory that tensor operators have written to."""

    outer_modes: Sequence[Any]
    """Torch-function modes of the program that were on outside and are set aside while tracing."""

    def enter_tensor(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """Fake of a real tensor, guarded; its placeholder is made when an operation first uses it."""

    def enter_number(self, value: float, source: Source) -> Any:
        """An int or float argument or attribute: itself (guarded by value), or a SymInt/SymFloat if dynamic."""

    @property
    def geometry(self) -> Geometry: ...

    @property
    def history(self) -> FrameHistory: ...

    @property
    def overrides(self) -> Any:
        """The state of torch's overriding (``subclasses.overrides.Overrides``)."""

    def is_leaf(self, fn: object) -> bool:
        """Whether calls of ``fn`` are recorded as one node instead of being inlined."""

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record one torch-level call and return its fake result (in-place operators return the same object)."""

    def accessed(self, accessor: Any, args: tuple[Any, ...]) -> Any:
        """A call of ``Tensor.attr.__get__``, ``__set__`` or ``__delete__``."""

    def construction_of(self, tensor: torch.Tensor) -> Construction | None:
        """For a wrapper subclass that the program made in the trace: the call that made it."""

    def load_attr(self, tensor: torch.Tensor, name: str) -> Any:
        """Attribute of a tensor: metadata is read off the fake tensor, tensors are recorded, methods are bound methods."""

    def store_attr(self, tensor: torch.Tensor, name: str, value: object) -> None: ...

    def is_symbolic(self, value: object) -> bool:
        """SymInt, SymFloat or SymBool."""

    def guard_flag(self, getter: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
        """Guard what ``getter``, a C function, gives."""

    def drawn_at(self, value: object) -> Source | None:
        """Where a symbolic number is found that the frame draws anew in every call; None for others."""

    def number_in(self, tensor: torch.Tensor) -> Any:
        """``tensor.item()`` as an unbacked symbol, whether or not the options ask for these."""

    def parameter(self, data: Any, requires_grad: bool) -> Any:
        """``torch.nn.Parameter(data, requires_grad)``."""

    def function_of(self, fn: Callable[[Any], Any], number: Any) -> Any:
        """``fn`` of a symbolic number that an input holds, as another input; None where that cannot be."""

    def place_of(self, number: Any) -> Source | None:
        """Where a symbolic number is found, or computed of one that is, before the frame runs; None where that cannot be."""

    def open_truth(self, value: object) -> Any:
        """``bool(value)`` as a symbol, where tracing does not know it and may leave it open; else None."""

    def extremum(self, fn: Callable[..., Any], first: Any, second: Any) -> Any:
        """``min`` or ``max`` of two numbers, at least one of which is symbolic."""

    def counted(self, tensor: torch.Tensor) -> Any:
        """As ``number_in``; what a small tensor of the host held at first is read by guards."""

    def tagged(self, key: str, tag: object) -> AbstractContextManager[None]:
        """Inside, every node that is recorded has ``meta[key] = tag``."""

    def untag(self, key: str, values: object) -> None:
        """Take the tag off the nodes that compute ``values`` (a tensor, or a container of such)."""

    def assume(self, value: torch.Tensor, *, truth: bool) -> bool:
        """Go on as if ``bool(value)`` were ``truth``, to be checked when the graph has run; False if that is impossible."""

    @property
    def assumptions(self) -> AssumedTruths:
        """What was assumed so."""

    def decided(self, truth: torch.SymBool) -> Any:
        """``truth`` as a bool, guarded, where tracing knows it: what asks for a bool, in C or by identity, takes no other."""

    def specialize(self, value: object) -> Any:
        """The plain number behind a symbolic one, with the guard that this needs."""

    def function_mode(self) -> AbstractContextManager[object]:
        """While C code runs: torch calls made by it on trace tensors are recorded."""

    def python_type(self, tensor: torch.Tensor) -> type:
        """The type a user sees for a proxy tensor (Tensor, Parameter, ...)."""

    def source_of(self, tensor: torch.Tensor) -> Source | None:
        """Where the real tensor behind a proxy was found; None for results of operations."""

    def session(self) -> AbstractContextManager[object]:
        """Around the whole trace: torch state that the program changes is put back at the end."""

    def state_delta(self) -> Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Calls that bring torch's state from what it was when the trace began to what it is now."""

    def leaving(
        self, tensor: torch.Tensor
    ) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor] | None]:
        """What the graph gives for a tensor of the trace, and what plain code must then do to it."""

    def finish(self, outputs: Sequence[Any]) -> CapturedCode:
        """Close the graph: ``outputs`` are trace tensors and symbolic numbers, in order."""

    def unrecorded(self) -> AbstractContextManager[None]:
        """Torch calls inside are the tracer's own, though C code of the program may be running."""

    @property
    def mode(self) -> AbstractContextManager[Any]:
        """The fake-tensor mode of the trace."""


class Interpreter(Protocol):
    """The bytecode interpreter (subpackage ``interpreter``)."""

    tracing: bool
    """Whether the trace is running, not being wound up."""

    def current_frame(self) -> Any:
        """Return the innermost interpreted frame (``interpreter.frame.Frame``)."""

    def call_function(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Bind arguments and interpret a Python function's body (generators give a trace generator)."""

    def call_linked(self, fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], link: Link) -> Any:
        """As ``call_function``, for a call whose result is that of the current step."""

    def run_root(
        self,
        fn: FunctionType,
        code: CodeType,
        local_values: dict[str, DeferredLocal],
        stop_at: tuple[int, ...] | None,
    ) -> RootOutcome:
        """Interpret the root frame; ``stop_at`` is the ``path`` of a GraphBreak: stop before that step."""

    def catches(self) -> bool:
        """Whether code of the program receives what the current step raises."""

    def raises(self, error: BaseException) -> bool:
        """Whether ``error`` has come out of a frame of the program."""

    def demand_program(self, error: BaseException) -> None:
        """Raise GraphBreak if ``error`` is not the program's."""

    def dealt_with(self, error: BaseException) -> None:
        """Say that a rule takes ``error`` for an answer. Raises GraphBreak if it is not the program's."""

    @property
    def handles(self) -> bool:
        """Whether code that ran so far may handle exceptions."""

    @property
    def root_step(self) -> int:
        """Number of the step of the root frame that is being executed."""

    def user_stack(self) -> tuple[tuple[str, int, str], ...]:
        """(file, line, function) of the interpreted frames, innermost last."""

    def module_stack(self) -> dict[str, tuple[str, str]]:
        """Path and class of the modules whose ``forward`` runs, by expressions for them, innermost last."""

    def run_body(self, fn: FunctionType, namespace: object) -> Any:
        """Run the body of a class statement in ``namespace``."""
