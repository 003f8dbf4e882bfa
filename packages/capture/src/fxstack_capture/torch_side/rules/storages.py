"""``Tensor.untyped_storage()`` and ``Tensor.data_ptr()``.

A storage in the trace is the storage of the fake. Its attributes are those of the real storage: a number of an
input's storage is a number that a guard reads, and a new storage has the size that its fake has.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import WordIs
from fxstack_capture.shapes.policy import is_static
from fxstack_capture.sources import Converted, Source
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

# Limits: the graph breaks at the address of a storage that the graph makes, at ``Tensor.storage()``, at the
# elements of a storage, and where a storage is resized.

_STORAGE: Any = torch.Tensor.untyped_storage


class Storages:
    """The storage objects that the program has read from tensors of the trace."""

    def __init__(self, tracer: TracerProtocol) -> None:
        self._tracer = tracer
        self._tensors: dict[int, torch.Tensor] = {}
        self._alive: list[torch.UntypedStorage] = []
        self._addresses: dict[int, Any] = {}

    @property
    def compared_storages(self) -> set[int]:
        """Return the storages that the program has read, because the program may compare them.

        The guards must check which inputs share each of these storages.
        """
        return set(self._tensors)

    def of(self, tensor: torch.Tensor) -> torch.UntypedStorage:
        """Return ``tensor.untyped_storage()``, and note the tensor for ``tensor_of``."""
        if self._tracer.overrides.concern(None, (tensor,), {}) or self._tracer.transforms.inside:
            raise graph_break("unsupported-call", "Tensor.untyped_storage of this tensor")
        with self._tracer.unrecorded():
            storage = tensor.untyped_storage()
        self._tensors.setdefault(storage._cdata, tensor)
        return storage

    def leave(self, tensor: torch.Tensor) -> torch.UntypedStorage:
        """Return ``tensor.untyped_storage()`` to the program. C code that reads the storage breaks the graph."""
        storage = self.of(tensor)
        self._alive.append(storage)
        self._tracer.trace.objects.opaque.add(id(storage))
        return storage

    def tensor_of(self, storage: torch.UntypedStorage) -> torch.Tensor | None:
        """Return a tensor of the trace with this storage, or ``None``."""
        return self._tensors.get(storage._cdata)

    def load(self, storage: torch.UntypedStorage, name: str) -> Any:
        """Return an attribute of a storage of the trace. Break the graph for all but device, size and address."""
        if name == "device":
            return self._tensors[storage._cdata].device
        if name in ("nbytes", "size", "__len__"):
            return MethodType(size, storage)
        if name == "data_ptr":
            return MethodType(address, storage)
        raise graph_break("unsupported-object", f"UntypedStorage.{name}")

    def size(self, storage: torch.UntypedStorage) -> Any:
        """Return the number of bytes of the storage, for an input's storage as an input number."""
        input_storage = self._input_of(storage)
        if input_storage is not None:
            real, source = input_storage
            return self._tracer.enter_number(real.nbytes(), Converted(source, torch.UntypedStorage.nbytes))
        with self._tracer.unrecorded():
            return storage.nbytes()

    def address(self, storage: torch.UntypedStorage) -> Any:
        """Return the address of an input's storage as a symbol, because it differs in each call."""
        input_storage, trace = self._input_of(storage), self._tracer.trace
        if input_storage is None or is_static(trace.options):
            raise graph_break("unsupported-call", "data_ptr of a new tensor")
        real, of_storage = input_storage
        if storage._cdata not in self._addresses:
            source = Converted(of_storage, torch.UntypedStorage.data_ptr)
            trace.guard(source, WordIs())
            self._addresses[storage._cdata] = self._tracer.geometry.number(real.data_ptr(), source)
        return self._addresses[storage._cdata]

    def _input_of(self, storage: torch.UntypedStorage) -> tuple[torch.UntypedStorage, Source] | None:
        """Return the real storage and its source, if the storage belongs to an input."""
        with self._tracer.unrecorded():
            for fake, real, source in self._tracer.inputs():
                if fake.untyped_storage()._cdata == storage._cdata:
                    return real.untyped_storage(), Converted(source, _STORAGE)
        return None


def size(storage: torch.UntypedStorage) -> int:
    """Return ``storage.nbytes()``. The tracer has a rule for calls with a storage of the trace."""
    return int(storage.nbytes())


def address(storage: torch.UntypedStorage) -> int:
    """Return ``storage.data_ptr()``. The tracer has a rule for calls with a storage of the trace."""
    return int(storage.data_ptr())


def _method(
    apply: Callable[[TracerProtocol, Any], Any],
) -> Callable[[TracerProtocol, Any, Args, Kwargs], Any]:
    """Return the rule of a method without arguments: ``apply`` of the tracer and the receiver."""

    def rule(tracer: TracerProtocol, fn: Any, args: Args, kwargs: Kwargs) -> Any:
        """Apply the rule to the receiver. Break the graph for arguments, which no rule supports."""
        if len(args) != 1 or kwargs:
            raise graph_break("unsupported-call", f"{fn} with arguments")
        return apply(tracer, args[0])

    return rule


def _pointer(tracer: TracerProtocol, tensor: torch.Tensor) -> Any:
    """Return ``tensor.data_ptr()``."""
    start = tracer.storages.address(tracer.storages.of(tensor))
    tracer.guard_offsets()
    with tracer.unrecorded():
        return start + tensor.storage_offset() * tensor.element_size()


METHODS = {
    "untyped_storage": _method(lambda tracer, tensor: tracer.storages.leave(tensor)),
    "data_ptr": _method(_pointer),
}
FUNCTIONS = {
    size: _method(lambda tracer, storage: tracer.storages.size(storage)),
    address: _method(lambda tracer, storage: tracer.storages.address(storage)),
}
