"""Fakes of real tensors: the same metadata, the same sharing of storages, no data.

``CaptureFakeMode.from_tensor`` is not used, for three reasons. It also makes fakes of gradients and bases, it
allocates symbols for the values of integer scalars, and it takes ten times as long for parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.fakes.fake_mode import CaptureFakeMode
from fxstack_capture.torch_side.fakes.writes import is_leaf

Geometry = tuple[tuple[int | torch.SymInt, ...], tuple[int | torch.SymInt, ...], int | torch.SymInt]
"""Size, strides and storage offset."""


def with_history(fake: FakeTensor) -> FakeTensor:
    """Return the fake with a ``grad_fn``. The fake is then not a leaf."""
    # The content of the history does not matter. If autograd runs its node, the node raises an error.
    add_history = torch_compat.DelayedError("the fake of a graph input has no history to differentiate", 1)
    with torch.inference_mode(mode=False), torch.enable_grad():
        return cast("FakeTensor", add_history(fake.requires_grad_()))


class _ViewOfAFunction(torch.autograd.Function):
    """Makes a view that has a ``grad_fn``, from a base that has none. Only a custom function can do this."""

    @staticmethod
    def forward(
        _context: object, base: torch.Tensor, _anchor: torch.Tensor, real: torch.Tensor, geometry: Any
    ) -> Any:
        """Return the view of ``base`` with the geometry of the real tensor."""
        return _part(base, real, *geometry)

    @staticmethod
    def backward(_context: object, *_gradients: object) -> Any:
        """Raise AssertionError. The tracer breaks the graph before a gradient reaches an input's history."""
        raise AssertionError("the fake of a graph input has no history to differentiate")


def _part(base: torch.Tensor, real: torch.Tensor, sizes: Any, strides: Any, offset: Any) -> torch.Tensor:
    """Return a differentiable view of ``base`` with the given geometry and the dtype of ``real``. Break the
    graph if the dtypes do not allow this.
    """
    if real.dtype == base.dtype:
        part = base.as_strided(sizes, strides, offset)
    elif base.is_complex() and base.dtype.to_real() == real.dtype:
        numbers = torch.view_as_real(base.conj() if base.is_conj() else base)
        part = numbers.as_strided(sizes, strides, offset)
    elif real.is_complex() and real.dtype.to_real() == base.dtype and not base.is_neg():
        pairs = base.as_strided((*sizes, 2), (*(2 * s for s in strides), 1), 2 * offset)
        part = torch.view_as_complex(pairs)
    else:
        raise graph_break("unsupported-tensor", "a differentiable view of another dtype")
    if part.is_conj() is not real.is_conj():
        part = part.conj()
    return part if part.is_neg() is real.is_neg() else torch_compat.neg_view(part)


def _anchor() -> torch.Tensor:
    """Return a leaf that requires grad. A view made from it has a ``grad_fn``."""
    return torch.empty(0, device="meta", requires_grad=True)


def _is_same_number(number: int | torch.SymInt, other: int | torch.SymInt) -> bool:
    """Return whether two sizes are the same int or the same expression. The comparison adds no guard."""
    if isinstance(number, torch.SymInt) and isinstance(other, torch.SymInt):
        return bool(number.node.expr == other.node.expr)
    return type(number) is type(other) and number == other


class Faker:
    """Makes the fakes of one trace. If tensors share a storage, their fakes share a storage."""

    def __init__(self, mode: CaptureFakeMode) -> None:
        self.mode = mode
        # The dictionaries keep the real objects alive. Otherwise, an address could be reused during the
        # trace.
        self._storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._fakes: dict[int, tuple[torch.Tensor, FakeTensor]] = {}
        self._entered: dict[int, tuple[torch.Tensor, Geometry]] = {}
        self.implied: set[int] = set()
        """The ids of the fakes of bases that were made only because of a view. No guard covers these bases
        yet.
        """

    def known(self, real: torch.Tensor) -> FakeTensor | None:
        """Return the fake that was made for this tensor object, or None."""
        pair = self._fakes.get(id(real))
        return None if pair is None else pair[1]

    def fake(
        self,
        real: torch.Tensor,
        sizes: Sequence[int | torch.SymInt],
        strides: Sequence[int | torch.SymInt],
        offset: int | torch.SymInt,
    ) -> FakeTensor:
        """Return the fake of ``real`` with the given geometry, which may be symbolic. Break the graph if no
        fake can have the history of ``real``.
        """
        existing = self.known(real)
        if existing is not None:
            return existing
        base = real._base
        if base is not None and (real.requires_grad or base.requires_grad):
            fake = self._view(real, base, sizes, strides, offset)
        else:
            fake = self._fresh(real, sizes, strides, offset)
        if fake.requires_grad is not real.requires_grad or is_leaf(fake) is not real.is_leaf:
            raise graph_break("unsupported-tensor", "a tensor whose history no fake can represent")
        if isinstance(real, torch.nn.Parameter):
            fake._is_param = True
        self._fakes[id(real)] = real, fake
        self._entered[id(fake)] = real, (tuple(sizes), tuple(strides), offset)
        return fake

    def fakes_at_start(self, values: Sequence[Any]) -> list[Any]:
        """Return ``values``, with each fake as it was when the trace began.

        If the program has changed the size, layout, storage or history of a fake, a new fake replaces it.
        """
        earlier = Faker(self.mode)
        earlier._storages = self._storages
        return [self._fake_at_start(value, earlier) for value in values]

    def _fake_at_start(self, value: Any, earlier: Faker) -> Any:
        """Return ``value``. If the program has changed its geometry, storage or history, return a new fake."""
        entry = self._entered.get(id(value))
        if entry is None:
            return value
        real, (sizes, strides, offset) = entry
        before = (*sizes, *strides, offset)
        now = (*value.shape, *value.stride(), value.storage_offset())
        unmoved = len(now) == len(before) and all(map(_is_same_number, now, before))
        storage, dtype = self._storages[real.untyped_storage()._cdata][1], real.dtype
        unmoved = unmoved and storage._cdata == value.untyped_storage()._cdata and value.dtype == dtype
        if unmoved and value.requires_grad is real.requires_grad and is_leaf(value) is real.is_leaf:
            return value
        return earlier.fake(real, sizes, strides, offset)

    def _fresh(self, real: torch.Tensor, sizes: object, strides: object, offset: object) -> FakeTensor:
        """Make a fake without a base. It has the autograd and inference state of the real tensor."""
        inference = real.is_inference()
        without_modes = torch_compat.DisableTorchDispatch()
        try:
            if inference is torch.is_inference_mode_enabled():
                fake = self._make_fake(real, sizes, strides, offset)
            else:
                with torch.inference_mode(inference):
                    fake = self._make_fake(real, sizes, strides, offset)
        finally:
            del without_modes  # the guard object is active until it is deleted
        if not real.requires_grad:
            return fake
        if inference:
            with torch.inference_mode():
                return cast("FakeTensor", fake.requires_grad_())
        fake.requires_grad_()
        return fake if real.is_leaf else with_history(fake)

    def _make_fake(self, real: torch.Tensor, sizes: object, strides: object, offset: object) -> FakeTensor:
        """Make a fake with the conjugate and negative bits of the real tensor."""
        meta = self._meta(real, sizes, strides, offset)
        if real.is_conj():
            meta = torch_compat.conj_view(meta)
        if real.is_neg():
            meta = torch_compat.neg_view(meta)
        return self.mode.wrap(meta, real.device)

    def _meta(self, real: torch.Tensor, sizes: Any, strides: Any, offset: Any) -> torch.Tensor:
        """Return a meta tensor of the given geometry. It uses the fake of the real tensor's storage."""
        storage = real.untyped_storage()
        storages = self._storages.get(storage._cdata)
        static = all(type(number) is int for number in (*sizes, *strides, offset))
        filled = offset == 0 and real.is_contiguous() and storage.nbytes() == real.nbytes
        if storages is None and static and filled:
            meta = torch.empty_strided(sizes, strides, dtype=real.dtype, device="meta")
            self._storages[storage._cdata] = storage, meta.untyped_storage()
            return meta
        if storages is None and not static:
            # The size of the storage is also symbolic: the fake storage ends at the end of the tensor.
            meta = torch.empty_strided(sizes, strides, dtype=real.dtype, device="meta")
            self._storages[storage._cdata] = storage, meta.untyped_storage()
            if type(offset) is int and offset == 0:
                return meta
        elif storages is None:
            whole = torch.empty(storage.nbytes(), dtype=torch.uint8, device="meta")
            self._storages[storage._cdata] = storage, whole.untyped_storage()
        meta = torch.empty(0, dtype=real.dtype, device="meta")
        return meta.set_(self._storages[storage._cdata][1], offset, sizes, strides)

    def _view(
        self, real: torch.Tensor, base: torch.Tensor, sizes: object, strides: object, offset: object
    ) -> FakeTensor:
        """Make a view that autograd knows as a view of ``base``. Break the graph if the tensors do not share
        memory.
        """
        # For a write to the fake, autograd must give the same answer as for the real view.
        if real.untyped_storage()._cdata != base.untyped_storage()._cdata:  # after ``real.data = ...``
            raise graph_break("unsupported-tensor", "a view that has other memory than its base")
        implied = self.known(base) is None
        fake_base = self.fake(base, base.size(), base.stride(), base.storage_offset())
        if implied:
            self.implied.add(id(fake_base))
        has_history = real.requires_grad and not real.is_leaf
        inference = torch.inference_mode(real.is_inference())  # this call also sets the grad mode
        with inference, torch.set_grad_enabled(has_history), self.mode:
            if has_history and not base.requires_grad:
                geometry = (sizes, strides, offset)
                apply = cast("Any", _ViewOfAFunction.apply)
                view = cast("FakeTensor", apply(fake_base, _anchor(), real, geometry))
            else:
                view = cast("FakeTensor", _part(fake_base, real, sizes, strides, offset))
        if real.requires_grad and not has_history:
            view.requires_grad_()
        creation_meta = torch_compat.get_creation_meta(real)
        torch_compat.set_creation_meta(view, creation_meta)
        return view
