"""The two functionalisations of torch behind one interface.

``DispatcherEngine`` turns on the C++ functionalisation kernels directly under autograd. It is the faster one
(no Python runs for them) and handles every ATen operator. ``ModeEngine`` goes through ``FunctionalTensorMode``:
slower, but it also knows custom operators that mutate (auto-functionalised), effect tokens and tensor subclasses.
Both keep autograd on top, so gradients are recorded on the functional tensors.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.random.rng import ExactRandomMode
from fxstack_functionalize.torch_compat import FunctionalTensor, FunctionalTensorMode, no_dispatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fxstack_functionalize.metadata import Relayout


class Engine(Protocol):
    """Wraps tensors so that operators on them are functional, and unwraps the results."""

    relayouts: list[tuple[torch.Tensor, Relayout]]
    """The changes of tensors' sizes and strides in place, in order."""
    cut_off_from: dict[int, torch.Tensor]
    """By storage: the tensor that others on it were detached from."""
    views_of_leaves: set[int]
    """The ids of the inputs that are views of leaves with a gradient, which autograd protects from changes."""
    gapped: dict[int, tuple[torch.Tensor, Sequence[Any]]]
    """By storage: the tensor that owns it, and its strides in eager, where there are gaps that its present value has not."""
    moved: dict[int, tuple[torch.Tensor, Any]]
    """By storage: the tensor that owns it, and its offset in eager, where its present value has another."""
    has_absolute_views: set[int]
    """The storages of which ``as_strided`` made views: these lie at an offset from the storage's start."""
    flat_views: bool
    """Whether views that have no exact inverse are made by ``as_strided`` of the tensor that they view (``inverses``)."""

    def active(self) -> Any:
        """Return the context in which wrapped tensors may be used."""

    def wrap(self, inner: torch.Tensor) -> torch.Tensor:
        """Return a functional tensor over ``inner`` that requires no gradient."""

    def core(self, wrapped: torch.Tensor) -> torch.Tensor:
        """Return the C++ functional tensor, of which mutations and views can be asked."""

    def is_functional(self, value: object) -> bool:
        """Return whether ``value`` is wrapped."""

    def apart(self, wrapped: torch.Tensor) -> torch.Tensor:
        """Return ``wrapped`` with a version counter of its own."""

    def set_outside(self, wrapped: torch.Tensor, source: torch.Tensor) -> None:
        """Let what lies around the core of ``wrapped`` follow ``subclasses.set_(source)``, which has been called."""


class DispatcherEngine:
    """C++ functionalisation kernels, called straight from autograd."""

    def __init__(self, *, flat_views: bool = False) -> None:
        self.flat_views = flat_views
        self.relayouts: list[tuple[torch.Tensor, Relayout]] = []
        self.cut_off_from: dict[int, torch.Tensor] = {}
        self.views_of_leaves: set[int] = set()
        self.gapped: dict[int, tuple[torch.Tensor, Sequence[Any]]] = {}
        self.moved: dict[int, tuple[torch.Tensor, Any]] = {}
        self.has_absolute_views: set[int] = set()

    @contextmanager
    def active(self) -> Iterator[None]:
        torch_compat.enable_functionalization(reapply_views=True)
        try:
            yield
        finally:
            torch_compat.disable_functionalization()

    def wrap(self, inner: torch.Tensor) -> torch.Tensor:
        return cast("torch.Tensor", torch_compat.to_functional_tensor(inner))

    def core(self, wrapped: torch.Tensor) -> torch.Tensor:
        return wrapped

    def is_functional(self, value: object) -> bool:
        return isinstance(value, torch.Tensor) and torch_compat.is_functional_tensor(value)

    def apart(self, wrapped: torch.Tensor) -> torch.Tensor:
        return wrapped.data

    def set_outside(self, wrapped: torch.Tensor, source: torch.Tensor) -> None:
        pass


class ModeEngine:
    """``FunctionalTensorMode``: the same kernels, through a Python mode."""

    def __init__(self, *, flat_views: bool = False) -> None:
        self.flat_views = flat_views
        self.mode = ExactRandomMode(_allow_token_discovery=True)
        self.relayouts: list[tuple[torch.Tensor, Relayout]] = []
        self.cut_off_from: dict[int, torch.Tensor] = {}
        self.views_of_leaves: set[int] = set()
        self.gapped: dict[int, tuple[torch.Tensor, Sequence[Any]]] = {}
        self.moved: dict[int, tuple[torch.Tensor, Any]] = {}
        self.has_absolute_views: set[int] = set()

    def active(self) -> FunctionalTensorMode:
        return self.mode

    def wrap(self, inner: torch.Tensor) -> torch.Tensor:
        with self.mode:
            return FunctionalTensor(torch_compat.to_functional_tensor(inner), self.mode)

    def core(self, wrapped: torch.Tensor) -> torch.Tensor:
        return cast("FunctionalTensor", wrapped).elem

    def is_functional(self, value: object) -> bool:
        return isinstance(value, FunctionalTensor)

    def apart(self, wrapped: torch.Tensor) -> torch.Tensor:
        with self.mode:
            return wrapped.data

    def set_outside(self, wrapped: torch.Tensor, source: torch.Tensor) -> None:
        """The mode changes the core alone."""
        with no_dispatch():
            wrapped.set_(source)


def current_value(engine: Engine, wrapped: torch.Tensor) -> torch.Tensor:
    """Return the plain tensor that holds the value of ``wrapped`` after all mutations so far."""
    torch_compat.functional_sync(wrapped)
    return cast("torch.Tensor", torch_compat.from_functional_tensor(engine.core(wrapped)))


def version_of(tensor: torch.Tensor) -> int:
    """Return the version counter; inference tensors have none, and 0 is returned."""
    return 0 if tensor.is_inference() else tensor._version


def storage_key(wrapped: torch.Tensor) -> int:
    """Identify the (functional) storage: equal for tensors that alias; below vmap, which has none on torch 2.11."""
    while torch_compat.is_batchedtensor(wrapped):
        wrapped = torch_compat.get_unwrapped(wrapped)
    return int(
        torch_compat.storage_address(wrapped)
    )  # asking for the storage would keep it from ever growing
