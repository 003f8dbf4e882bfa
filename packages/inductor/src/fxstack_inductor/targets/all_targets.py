"""The list of targets, and the choice of the target of a graph."""

from __future__ import annotations

from typing import Final

from torch.fx import GraphModule

from fxstack_inductor.targets.c.target import CTarget
from fxstack_inductor.targets.target import Target, tensors_of
from fxstack_inductor.targets.triton.target import TritonTarget

TARGETS: Final[tuple[Target, ...]] = (CTarget(), TritonTarget())
"""The targets. In a graph with tensors on several device types, the last target of these types is chosen."""


def target_named(text: str) -> Target:
    """Return the target for a device type, for example ``cpu``, ``cuda`` or ``cuda:sm_90``.

    Raises:
        ValueError: no target has this device type.
    """
    for target in TARGETS:
        if target.device == text.partition(":")[0]:
            return target
    raise ValueError(f"target {text!r}: known are 'cpu' and 'cuda' (also as 'cuda:sm_90')")


def target_of(graph_module: GraphModule, named: str | None = None) -> Target:
    """Return the target that ``named`` (``options.target``) names; by default, the target of the graph's tensors.

    In a graph with tensors on a GPU, operators on CPU tensors stay calls of ATen.
    """
    if named is not None:
        return target_named(named)
    devices = {tensor.device.type for tensor in tensors_of(graph_module)}
    return next((target for target in reversed(TARGETS) if target.device in devices), TARGETS[0])


def devices_with_attention(named: str | None) -> tuple[str, ...]:
    """Return the device types whose attention operators become kernels; ``named`` is ``options.target``."""
    devices = tuple(target.device for target in TARGETS if target.has_attention)
    # A target that the user names compiles tensors of all devices.
    return (*devices, "cpu") if named is not None and target_named(named).has_attention else devices
