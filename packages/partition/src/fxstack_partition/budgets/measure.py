"""Measure operators on the present machine: seconds and internal memory, once for each distinct call.

``Measured()`` runs a node's operator on artificial arguments with its shapes, dtypes and strides.
``PartitionOptions.seconds`` and ``PartitionOptions.scratch`` take its methods:

    measured = Measured()
    options = PartitionOptions(seconds=measured.seconds, scratch=measured.scratch)
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from fxstack_partition.joint.ops import OpKind, kind_of
from fxstack_partition.torch_compat import OpOverload, tree_leaves

_UNMEASURED_KINDS = (
    OpKind.INPUT,
    OpKind.CONSTANT,
    OpKind.SYMBOLIC,
    OpKind.GETITEM,
    OpKind.EFFECT,
    OpKind.COLLECTIVE,
    OpKind.HIGHER_ORDER,
)
"""Kinds that compute nothing, or that must not run for a measurement."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The measurement of one call: minimal seconds of several runs, and bytes allocated beyond the results."""

    seconds: float
    scratch: int


class Measured:
    """Measures operators, once for each combination of operator, shapes, strides, dtypes and other arguments.

    ``unbacked``: the value of a symbolic size without a hint.
    """

    def __init__(self, runs: int = 3, unbacked: int = 64) -> None:
        self._runs = runs
        self._unbacked = unbacked
        self._samples: dict[str, Sample | None] = {}

    def seconds(self, node: Node) -> float | None:
        """Return the seconds of one run; None if the node cannot run alone."""
        sample = self.measure(node)
        return None if sample is None else sample.seconds

    def scratch(self, node: Node) -> int:
        """Return the bytes that the operator allocates beyond its results; 0 if the operator cannot run alone."""
        sample = self.measure(node)
        return 0 if sample is None else sample.scratch

    def measure(self, node: Node) -> Sample | None:
        """Return the measurement of a node's operator; None if it cannot run alone. Equal calls are measured once."""
        if not isinstance(node.target, OpOverload) or kind_of(node) in _UNMEASURED_KINDS:
            return None
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: self._concrete(n.meta.get("val")))
        key = f"{node.target}{map_tensors(args)}{map_tensors(kwargs)}"
        if key not in self._samples:
            self._samples[key] = self._sample(node.target, args, kwargs)
        return self._samples[key]

    def _concrete(self, value: object) -> Any:
        """Return a concrete value for metadata: (meta tensor with sizes at their hints, device), or a number."""
        if isinstance(value, torch.Tensor):
            shape = [self._concrete(size) for size in value.shape]
            stride = [self._concrete(step) for step in value.stride()]
            return torch.empty_strided(shape, stride, dtype=value.dtype, device="meta"), value.device
        if isinstance(value, torch.SymInt):
            return value.node.hint if value.node.has_hint() else self._unbacked
        if isinstance(value, tuple | list):
            return type(value)(self._concrete(item) for item in value)
        return value

    def _sample(self, target: OpOverload[..., Any], args: object, kwargs: object) -> Sample | None:
        """Run an operator on real tensors. Return the lowest seconds of all runs; None if the operator raises."""
        try:
            with torch.no_grad(), torch.random.fork_rng():
                arguments = [_real(part) for part in (args, kwargs)]
                target(*arguments[0], **arguments[1])
                seconds = min(_timed(target, *arguments) for _ in range(self._runs))
                return Sample(seconds, _inside(target, *arguments))
        except (RuntimeError, IndexError, TypeError, ValueError):  # the operator refuses the artificial data
            return None


def map_tensors(value: Any) -> str:
    """Return a text that is equal for equal calls: their tensors agree in dtype, sizes, strides and device.

    The key of a measurement.
    """
    if _is_tensor(value):
        tensor, device = value
        return f"{tensor.dtype}{tuple(tensor.shape)}{tensor.stride()}{device}"
    if isinstance(value, dict):
        return "".join(f"{key}={map_tensors(item)}," for key, item in value.items())
    if isinstance(value, tuple | list):
        return f"({','.join(map(map_tensors, value))})"
    return repr(value)


def _is_tensor(value: object) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and isinstance(value[0], torch.Tensor)


def _real(value: Any) -> Any:
    """Replace (meta tensor, device) by a real tensor: floats are ones (valid for logarithms), integers are
    zeros (valid indices).
    """
    if _is_tensor(value):
        tensor, device = value
        data = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
        return data.fill_(1) if data.dtype.is_floating_point else data.zero_()
    if isinstance(value, dict):
        return {key: _real(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_real(item) for item in value)
    return value


def _timed(target: OpOverload[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Run an operator once, and return the seconds that it took."""
    start = time.perf_counter()
    target(*args, **kwargs)
    return time.perf_counter() - start


def _inside(target: OpOverload[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the peak of the allocated bytes during one call, minus the bytes of new results."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        results = target(*args, **kwargs)
    before, after = (_storages(values) for values in ((args, kwargs), results))
    return max(0, peak_of_events(profiler) - sum(after[p] for p in after.keys() - before.keys()))


def _storages(values: object) -> dict[int, int]:
    """Return the bytes of each tensor's memory, by address.

    ``_inside`` uses the map to leave out results that are on the memory of arguments.
    """
    tensors = (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))
    storages = (tensor.untyped_storage() for tensor in tensors)
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def peak_of_events(profiler: torch.profiler.profile) -> int:
    """Return the most bytes alive at once among the allocations that ``profiler`` has recorded."""
    alive = peak = 0
    events: Any = profiler.profiler.kineto_results.events()
    memory = [event for event in events if event.name() == "[memory]"]
    for event in sorted(memory, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return peak
