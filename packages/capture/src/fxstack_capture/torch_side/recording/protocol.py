"""``TracerProtocol``: the members of the tracer that the parts of ``torch_side`` use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from fxstack_capture.sources import Source
from fxstack_capture.torch_side.fakes.fake_mode import CaptureFakeMode
from fxstack_capture.torch_side.fakes.faker import Faker
from fxstack_capture.torch_side.global_state.state import Regions, StateLog
from fxstack_capture.torch_side.higher_order.selection import Selection
from fxstack_capture.torch_side.numbers.symbols import Symbols
from fxstack_capture.torch_side.recording.graph import GraphBuilder
from fxstack_capture.torch_side.recording.node_metadata import Annotations
from fxstack_capture.torch_side.subclasses.suspended_modes import Level
from fxstack_capture.trace.protocols import Arrays, AssumedTruths, TorchSide
from fxstack_capture.trace.state import Args, Kwargs, Trace


# The tracer imports its parts. The parts therefore see the tracer, and each other, only through protocols.
class OverridesProtocol(Protocol):
    """``__torch_function__`` of the trace (``subclasses.overrides.Overrides``)."""

    def as_subclass(self, tensor: torch.Tensor, cls: type) -> torch.Tensor:
        """Return ``tensor.as_subclass(cls)``: a view of the whole tensor, as a tensor of class ``cls``."""

    def at(self, level: Level) -> AbstractContextManager[None]:
        """Suspend the overrides that ``level`` turns off, inside the context."""

    def call(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run a call for which ``concern`` is true."""

    def concern(self, fn: Any, args: Sequence[Any], kwargs: Kwargs) -> bool:
        """Return whether a ``__torch_function__`` or a mode of the program may handle the call."""

    def handle(self, func: Callable[..., Any], relevant: Sequence[Any], args: Args, kwargs: Kwargs) -> Any:
        """Implement ``torch.overrides.handle_torch_function``."""

    @property
    def has_classes(self) -> bool:
        """Whether the trace has tensors of users' classes."""

    @property
    def level(self) -> Level:
        """The overrides that the program has turned off."""

    def make_subclass(self, cls: type, data: torch.Tensor) -> torch.Tensor:
        """Implement ``torch.Tensor._make_subclass(cls, data)``: detach the tensor and change the class."""

    @property
    def modes(self) -> list[Any]:
        """Return the proxies of the program's modes, innermost last."""

    def overriding(self, values: Sequence[Any]) -> bool:
        """Return whether a value has a ``__torch_function__`` to call (``torch.overrides.has_torch_function``)."""


class LiftingProtocol(Protocol):
    """Fakes in place of wrapped tensors (``higher_order.nested.lifting.Lifting``)."""

    def fakes_of(self, values: Any) -> Any:
        """Return ``values`` with fakes in place of wrapped tensors, also inside of plain containers."""

    def dense_fake(self, fake: torch.Tensor) -> torch.Tensor | None:
        """Return a contiguous fake for the wrapped tensor that ``fake`` replaces; None for another tensor."""

    def note_made(self, values: Any) -> None:
        """Note that ``values`` come from a layer inside of the function, so that they stay as they are."""

    def claim(self) -> Any:
        """Return the object itself to the first caller, the call that it was made for; then ``None``."""


class TransformsProtocol(Protocol):
    """The layers of ``torch.func`` in the trace (``higher_order.transforms.Transforms``)."""

    def concern(self, args: Sequence[Any], kwargs: Kwargs) -> bool:
        """Return whether a call must run below transforms, or uses results of a finished transform (``vjp``)."""

    def run_dual(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs, levels: int) -> Any:
        """Run ``fn``, which enters (``levels`` is 1) or exits (-1) a level of forward-mode AD."""

    lifting: LiftingProtocol | None
    """Replaces wrapped tensors by fakes, while a function is traced without the layers around it."""

    def without_wrappers(self, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Return arguments of a call. If a function is traced without the layers around it, fakes replace wrappers."""

    def recording(self, *, on: bool) -> AbstractContextManager[None]:
        """Record operators below the layers inside the context, or not: the tracer itself calls them."""

    def without_layers(self, lifting: LiftingProtocol) -> AbstractContextManager[None]:
        """Trace a function as if no layer was active. ``lifting`` replaces wrapped tensors. The layers are off."""

    @property
    def inside(self) -> bool:
        """Whether a layer or a level of forward-mode AD is active."""

    def run(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run ``fn`` for real. Raise the program's exception, or GraphBreak if the exact exception is unknown."""


class WrappersProtocol(Protocol):
    """The wrapper subclasses of the trace (``subclasses.wrappers.Wrappers``)."""

    def has_torch_function(self, value: object) -> bool:
        """Return whether ``value`` is a wrapper whose ``__torch_function__`` torch would call."""

    def construct(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> torch.Tensor:
        """Return the fake of a new wrapper, as ``torch.Tensor._make_wrapper_subclass`` returns a wrapper."""

    @property
    def count(self) -> int:
        """Number of wrappers that the program has constructed."""

    def demand_same_parts(self) -> None:
        """Break the graph, at its end, if an operator has given an input wrapper other inner tensors."""

    def demand_unused(self, tensor: torch.Tensor, name: str) -> None:
        """Break the graph if an attribute of a wrapper changes after an operator has used the wrapper."""

    @property
    def used(self) -> bool:
        """Whether the trace has wrappers."""


class AssumptionsProtocol(AssumedTruths, Protocol):
    """The assumed truths of the trace (``recording.assumptions.Assumptions``)."""

    @property
    def may_assert(self) -> bool:
        """Whether the nodes of the region become a nested graph, which can hold assertions."""

    @property
    def captures_numbers(self) -> bool:
        """Whether a number in a tensor becomes a symbol: if the options say so, and in a nested graph."""

    def none_inside(self, *, nested: bool) -> AbstractContextManager[None]:
        """Disallow assumptions in code whose nodes leave the graph. ``nested``: the nodes form a nested graph."""

    @property
    def region(self) -> torch.fx.Node | None:
        """The last node before code whose nodes do not stay in the graph. ``None`` outside of such code."""


class ArraysProtocol(Arrays, Protocol):
    """The NumPy arrays of the trace (``arrays.array_tracer.ArrayTracer``)."""

    @property
    def active(self) -> bool:
        """Whether a function of ``torch._numpy`` is running, under which torch has other defaults."""

    def to_tensor(self, array: Any) -> torch.Tensor:
        """Implement ``torch.from_numpy``: return a new tensor on the same memory."""


class HooksProtocol(Protocol):
    """The hooks on computed tensors (``autograd.tensor_hooks.HooksInGraph``)."""

    @property
    def shown(self) -> list[list[torch.Tensor]]:
        """The tensors that each hook has seen, in a graph that is a backward pass."""

    @property
    def count(self) -> int:
        """Number of hooks that the trace has registered so far, removed hooks included."""

    def add(self, node: torch.fx.Node | None, tensor: torch.Tensor) -> Any:
        """Note a hook that ``node`` registers, or the replacement code if ``node`` is None. Return its handle."""

    def close(self, outputs: Sequence[object]) -> None:
        """Remove the nodes of removed hooks. Raise GraphBreak if a tensor with a hook leaves the graph."""


class CopiesProtocol(Protocol):
    """The storages that deep copies have met (``rules.copying.Copies``)."""

    def is_first(self, tensor: torch.Tensor, memo: dict[Any, Any]) -> bool:
        """Return whether the deep copy has not met this memory before. Add the memory to the memo's set."""


class TracerProtocol(TorchSide, Protocol):
    """The tracer as its parts and the rules see the tracer (``recording.tracer.TorchTracer``)."""

    trace: Trace
    builder: GraphBuilder
    """The graph under construction."""
    mode: CaptureFakeMode
    """The mode under which operators run on fakes."""
    faker: Faker
    """Makes the fakes of real tensors."""
    symbols: Symbols
    """The nodes of symbolic numbers."""
    state: StateLog
    """Torch's global state when the trace began."""
    regions: Regions
    """The open regions of inference mode."""
    notes: Annotations
    """Writes the metadata of nodes."""

    # Properties accept the implementing classes. Attributes are writable and would require the protocols themselves.
    @property
    def overrides(self) -> OverridesProtocol:
        """The ``__torch_function__`` overrides."""

    @property
    def transforms(self) -> TransformsProtocol:
        """The active layers of ``torch.func``."""

    @property
    def wrappers(self) -> WrappersProtocol:
        """The wrapper subclasses."""

    @property
    def assumptions(self) -> AssumptionsProtocol:
        """The assumed truths of tensors."""

    @property
    def arrays(self) -> ArraysProtocol:
        """The NumPy arrays."""

    @property
    def hooks(self) -> HooksProtocol:
        """The tensor hooks in the graph."""

    @property
    def copies(self) -> CopiesProtocol:
        """The storages of deep copies."""

    selection: Selection | None
    """The policy of the selective checkpoint that is traced now, or None."""
    busy: bool
    """Whether the tracer itself calls torch, so that ``RecordingMode`` lets the call pass."""
    differentiated: bool
    """Whether the graph has computed a gradient, which may have freed the history of its results."""
    overriding: dict[Callable[..., Any], Callable[..., Any]]
    """Replacements of functions, while a higher-order operator gives a function another meaning."""

    unwritable: dict[int, str]
    """By storage: the text of the graph break at a write to the storage."""
    steps: dict[torch.fx.Node, int]
    """By node: the step of the root frame that made the node. A break before a node ends the graph at its step."""

    def record(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run ``fn`` on fakes and add a node. A result of known plain data needs no node."""

    def call_plainly(self, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Run a call of torch that no ``__torch_function__`` of the program handles: by a rule, or as one node."""

    def original_of(self, tensor: torch.Tensor) -> tuple[torch.Tensor | None, Source | None]:
        """Return the real tensor of a fake and its source, or two ``None`` for a tensor made in the trace."""

    def attributes_of(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Return the attributes that the program has assigned to a fake, by name."""

    def annotate(self, node: torch.fx.Node) -> None:
        """Add the program's current location and modules to the metadata of a new node."""

    def note_entered(self, tensor: torch.Tensor, entered: torch.Tensor) -> None:
        """Put ``entered`` in place of the fake ``tensor`` in ``inputs``: the program has given it other memory."""

    def inputs(self) -> list[tuple[torch.Tensor, torch.Tensor, Source]]:
        """Return (fake, real tensor, source) of every input tensor."""

    def guard_offsets(self) -> None:
        """Guard the storage offsets of all inputs, also of later ones: a result may depend on them (``data_ptr``)."""

    def guard_offset(self, real: torch.Tensor, source: Source) -> None:
        """Guard the storage offset of the input ``real``, unless it is symbolic."""

    def record_effect(self, fn: Callable[..., Any], args: Args) -> None:
        """Add a node for a call that has already run and that returns nothing."""

    def leave_as(self, tensor: torch.Tensor, finish: Callable[..., torch.Tensor]) -> None:
        """Let the replacement code apply ``finish`` to ``tensor`` if it leaves the graph."""

    def all_bound(self) -> None:
        """Tell torch's shape environment that the new symbols of the last operator have nodes."""

    def note_mutated(self, tensor: torch.Tensor, added: float | None = None) -> None:
        """Note a write to ``tensor``. ``added`` is the number that the write adds to each element, if any."""

    def enter_drawn(self, example: torch.Tensor, source: Source) -> torch.Tensor:
        """Return an unguarded fake of a tensor like ``example``, which the replacement code draws."""
