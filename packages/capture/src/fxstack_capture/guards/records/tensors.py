"""Guard records about tensors and about torch's global state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.guards.records.check import Check, LoweredCheck, Reader
from fxstack_capture.guards.text import class_name, literal, short
from fxstack_capture.guards.torch_state import GETTERS, TorchState, difference, function_mode_at, snapshot
from fxstack_capture.guards.weak_references import WeakSources
from fxstack_capture.sources import Source

_Numbers = tuple[int | None, ...]
"""Sizes or strides of a tensor. None stands for a number that the guard does not check."""


def _shown(numbers: _Numbers | None) -> str:
    """Return the text of sizes or strides for a message, for example "(2, *)".

    ``*`` stands for a number that the guard does not check.
    """
    if numbers is None:
        return "any"
    return "(" + ", ".join("*" if number is None else str(number) for number in numbers) + ")"


def _demanded(demanded: _Numbers | None, numbers: _Numbers | None) -> _Numbers | None:
    """Return the current ``numbers``, with None in the dimensions that ``demanded`` leaves open.

    A message then shows no change in a dimension that the guard does not check.
    """
    if demanded is None or numbers is None or len(demanded) != len(numbers):
        return None if demanded is None else numbers
    return tuple(None if old is None else new for old, new in zip(demanded, numbers, strict=True))


def _each(method: str, numbers: Iterable[int | None]) -> list[str]:
    """Return the conditions on single dimensions, for example ``x.size(1) == 3``. Skip the numbers that are None."""
    return [f"{method}({dim}) == {number}" for dim, number in enumerate(numbers) if number is not None]


@dataclass(frozen=True, slots=True)
class TensorIs(Check):
    """The facts about a tensor on which a graph is specialised.

    None in ``sizes`` or ``strides`` stands for a dynamic number; ``ShapeHolds`` records are its conditions.
    ``keyset`` is the raw dispatch key set of the tensor, without the thread-local include and exclude sets.
    """

    cls: type
    """The exact Python class."""
    keyset: int
    """The dispatch key set as a number."""
    dtype: object
    """A ``torch.dtype``."""
    device: object
    """A ``torch.device``."""
    layout: object
    """A ``torch.layout``."""
    requires_grad: bool
    """The demanded value of ``tensor.requires_grad``."""
    sizes: _Numbers
    """The demanded sizes. None stands for a dynamic size."""
    strides: _Numbers | None
    """The demanded strides, with None for a dynamic stride. None in place of the tuple if any strides will
    do.
    """
    storage_offset: int | None = None
    """The demanded offset in elements, or None if any offset will do."""
    is_leaf: bool | None = None
    """The demanded value of ``tensor.is_leaf``, or None if it does not matter."""

    cost = 10
    kinds = ("TENSOR_MATCH",)
    nanoseconds = 37
    weak_fields = ("cls",)

    def weaken(self, weak: WeakSources) -> Check:
        """Many tensors of a program, such as the parameters of a model, have equal facts."""
        known: Check | None = weak.checks.get(self)
        if known is None:
            known = weak.checks[self] = Check.weaken(self, weak)
        return known

    def _texts(self) -> dict[str, str]:
        """Return the facts as texts, name -> text. ``describe`` compares them."""
        return {
            "class": short(self.cls),
            "dtype": str(self.dtype),
            "device": str(self.device),
            "layout": str(self.layout),
            "requires_grad": str(self.requires_grad),
            "sizes": _shown(self.sizes),
            "strides": _shown(self.strides),
            "storage_offset": str(self.storage_offset),
            "is_leaf": str(self.is_leaf),
            "dispatch keys": hex(self.keyset),
        }

    def demand(self) -> str:
        return (
            f"must be a {short(self.cls)} of {self.dtype} on {self.device}, sizes {_shown(self.sizes)}, "
            f"strides {_shown(self.strides)}, requires_grad={self.requires_grad}"
        )

    def condition(self, name: str) -> str:
        """Omit the dispatch keys, because the other facts nearly always determine them."""
        parts = [f"type({name}) is {literal(self.cls)}", f"{name}.dtype == {self.dtype}"]
        parts += [f"str({name}.device) == '{self.device}'", f"{name}.requires_grad is {self.requires_grad}"]
        if self.layout is not torch.strided:
            parts.append(f"{name}.layout == {self.layout}")
        shape, strides = self.sizes, self.strides or ()
        parts += (
            [f"{name}.dim() == {len(shape)}", *_each(f"{name}.size", shape)]
            if None in shape
            else [f"{name}.shape == {tuple(shape)}"]
        )
        parts += (
            _each(f"{name}.stride", strides) if None in strides else [f"{name}.stride() == {tuple(strides)}"]
        )
        if self.storage_offset is not None:
            parts.append(f"{name}.storage_offset() == {self.storage_offset}")
        return " and ".join(parts if self.is_leaf is None else [*parts, f"{name}.is_leaf is {self.is_leaf}"])

    def describe(self, value: object, _read: Reader) -> str:
        if not isinstance(value, torch.Tensor):
            return f"it is a {class_name(type(value))}"
        facts = tensor_facts(value)
        old, new = self._texts(), facts._texts()
        new["sizes"] = _shown(_demanded(self.sizes, facts.sizes))
        new["strides"] = _shown(_demanded(self.strides, facts.strides))
        new["storage_offset"] = str(None if self.storage_offset is None else value.storage_offset())
        new["is_leaf"] = str(self.is_leaf if self.is_leaf is None else value.is_leaf)
        changes = [f"{name} is {new[name]} (was {old[name]})" for name in old if old[name] != new[name]]
        return ", ".join(changes) or "another property of the tensor changed"


def tensor_facts(tensor: torch.Tensor) -> TensorIs:
    """Return all static facts of a tensor. All sizes, and all strides of a strided tensor, are numbers.

    ``storage_offset`` and ``is_leaf`` are None. By ``dataclasses.replace``, the caller sets them if they
    matter, and replaces dynamic sizes and strides by None.
    """
    # The program's ``__torch_function__`` must not run.
    with torch_compat.DisableTorchFunction():
        strided = tensor.layout is torch.strided
        return TensorIs(
            cls=type(tensor),
            keyset=torch_compat.dispatch_keys(tensor).raw_repr(),
            dtype=tensor.dtype,
            device=tensor.device,
            layout=tensor.layout,
            requires_grad=tensor.requires_grad,
            sizes=tuple(map(int, tensor.shape)),
            strides=tuple(map(int, tensor.stride())) if strided else None,
        )


def _marks(names: tuple[str, ...], dims: tuple[Any, ...]) -> str:
    """Return the marked dimensions as text, for example "_dynamo_dynamic_indices [0]", or "none"."""
    shown = [f"{name} {sorted(marked)}" for name, marked in zip(names, dims, strict=True) if marked]
    return ", ".join(shown) or "none"


@dataclass(frozen=True, slots=True)
class MarksWithin(Check):
    """Each attribute ``names[i]`` of a tensor is missing, or is a set of dimensions that are all in
    ``dims[i]``.

    Therefore a tensor with fewer marks than the tensor of the trace can use the compiled entry.
    """

    names: tuple[str, ...]
    """The names of the attributes that ``mark_dynamic`` and similar functions set."""
    dims: tuple[frozenset[int], ...]
    """For each name, the dimensions that may be marked."""

    cost = 11
    kinds = ("TENSOR_MATCH", "DIMENSION_MARKING")

    def demand(self) -> str:
        return f"must not have marks other than {_marks(self.names, self.dims)}"

    def condition(self, name: str) -> str:
        rows = zip(self.names, self.dims, strict=True)
        marked = ", ".join(f"{mark!r}: {set(dims)}" for mark, dims in rows if dims)
        return f"marks({name}) <= {{{marked}}}" if marked else f"not marks({name})"

    def describe(self, value: object, _read: Reader) -> str:
        if not isinstance(value, torch.Tensor):
            return f"it is a {class_name(type(value))}"
        dims = tuple(value.__dict__.get(name, ()) for name in self.names)
        return f"the marks are {_marks(self.names, dims)}"


@dataclass(frozen=True, slots=True)
class TorchStateIs(Check):
    """Torch's global state: grad mode, inference mode, autocast, defaults, modes and so on."""

    state: TorchState
    """The state when the trace started."""

    cost = 5
    kinds = ("GLOBAL_STATE",)
    nanoseconds = 75
    is_of_frame = False

    def lower(self, _source: Source) -> LoweredCheck:
        getters = tuple(
            (getter.function, getter.args, value)
            for getter, value in zip(GETTERS, self.state.values, strict=True)
        )
        return None, "TorchStateIs", (getters, self.state.function_modes, function_mode_at)

    def demand(self) -> str:
        return "torch's global state must be unchanged"

    def condition(self, name: str) -> str:
        return f"unchanged({name}.state)"

    def describe(self, _value: object, _read: Reader) -> str:
        return difference(self.state, snapshot()) or "the state has changed back since the check"
