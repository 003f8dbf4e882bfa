"""The two functionalisations of torch behind one interface.

``Engine`` turns on the C++ functionalisation kernels below autograd. It is faster (no Python runs
for the kernels) and handles every ATen operator. ``ModeEngine`` uses ``FunctionalTensorMode``: it is slower,
but also handles mutating custom operators (auto-functionalised), effect tokens and tensor subclasses. In
both, autograd is on top, so it records gradients on the functional tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.metadata.records import Relayout
from fxstack_functionalize.torch_compat import FunctionalTensor, FunctionalTensorMode, no_dispatch
from fxstack_functionalize.tracer.exact_random import ExactRandomMode


class Engine:
    """Makes tensors functional by torch's C++ kernels below autograd. No Python runs for the kernels."""

    def __init__(self, *, flat_views: bool = False) -> None:
        self.flat_views = flat_views
        """Whether views without an exact inverse become ``as_strided`` of their root (``inverses``)."""
        self.relayouts: list[tuple[torch.Tensor, Relayout]] = []
        """The in-place changes of tensors' metadata, in order."""
        self.detached_from: dict[int | None, torch.Tensor] = {}
        """Storage -> the tensor from which other tensors on this storage were detached."""
        self.views_of_leaves: set[int] = set()
        """The ids of inputs that are views of leaves with a gradient: autograd forbids to change them."""
        self.non_dense: dict[int | None, tuple[torch.Tensor, Sequence[Any]]] = {}
        """Storage -> (owner, eager's strides), if eager's tensor is non-dense but the present value is dense."""
        self.moved: dict[int, tuple[torch.Tensor, Any]] = {}
        """Storage -> (owner, eager's offset), if the present value has another storage offset than eager's tensor."""
        self.has_absolute_views: set[int] = set()
        """The storages with ``as_strided`` views, whose offsets count from the start of the storage."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Enter the context in which wrapped tensors can be used."""
        torch_compat.enable_functionalization(reapply_views=True)
        try:
            yield
        finally:
            torch_compat.disable_functionalization()

    def wrap(self, inner: torch.Tensor) -> torch.Tensor:
        """Return a functional tensor over ``inner`` that requires no gradient."""
        return cast("torch.Tensor", torch_compat.to_functional_tensor(inner))

    def core(self, wrapped: torch.Tensor) -> torch.Tensor:
        """Return the C++ functional tensor, which records mutations and views."""
        return wrapped

    def is_functional(self, value: object) -> bool:
        """Return whether ``value`` is wrapped."""
        return isinstance(value, torch.Tensor) and torch_compat.is_functional_tensor(value)

    def with_own_version(self, wrapped: torch.Tensor) -> torch.Tensor:
        """Return ``wrapped`` with its own version counter."""
        return wrapped.data

    def set_outside(self, wrapped: torch.Tensor, source: torch.Tensor) -> None:
        """Update the wrapper around the core of ``wrapped`` after ``wrapped.set_(source)`` was called."""


class ModeEngine(Engine):
    """Uses the same kernels through ``FunctionalTensorMode``."""

    def __init__(self, *, flat_views: bool = False) -> None:
        super().__init__(flat_views=flat_views)
        self.mode = ExactRandomMode(_allow_token_discovery=True)

    def active(self) -> FunctionalTensorMode:
        return self.mode

    def wrap(self, inner: torch.Tensor) -> torch.Tensor:
        with self.mode:
            return FunctionalTensor(super().wrap(inner), self.mode)

    def core(self, wrapped: torch.Tensor) -> torch.Tensor:
        return cast("FunctionalTensor", wrapped).elem

    def is_functional(self, value: object) -> bool:
        return isinstance(value, FunctionalTensor)

    def with_own_version(self, wrapped: torch.Tensor) -> torch.Tensor:
        with self.mode:
            return wrapped.data

    def set_outside(self, wrapped: torch.Tensor, source: torch.Tensor) -> None:
        """Call ``set_`` on the Python wrapper: the mode changes the core alone."""
        with no_dispatch():
            wrapped.set_(source)


def current_value(engine: Engine, wrapped: torch.Tensor) -> torch.Tensor:
    """Return the plain tensor, not functional, with the value of ``wrapped`` after all changes so far."""
    torch_compat.functional_sync(wrapped)
    return cast("torch.Tensor", torch_compat.from_functional_tensor(engine.core(wrapped)))


def version_of(tensor: torch.Tensor) -> int:
    """Return the version counter; 0 for inference tensors, which have none."""
    return 0 if tensor.is_inference() else tensor._version


def storage_key(wrapped: torch.Tensor) -> int:
    """Return the identity of the functional storage.

    Unwrap vmap levels first, because their tensors have no storage on torch 2.11.
    """
    while torch_compat.is_batchedtensor(wrapped):
        wrapped = torch_compat.get_unwrapped(wrapped)
    # Reading the storage itself would prevent it from growing.
    return int(torch_compat.storage_address(wrapped))
