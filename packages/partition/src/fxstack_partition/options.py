"""The options record of this package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch.fx import Node

from fxstack_interchange import InputKind, StageGraph

_STATIC = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})


@dataclass(frozen=True, slots=True)
class Device:
    """The speed of a device, for the estimate of time."""

    flops_per_second: float
    bytes_per_second: float
    launch_seconds: float


DEVICES = {
    "cpu": Device(1e11, 2e10, 2e-6),
    "a100": Device(1.5e14, 1.5e12, 3e-6),
    "h100": Device(4.5e14, 3.0e12, 3e-6),
}
"""Orders of magnitude that programs reach, not values of a data sheet."""


@dataclass(frozen=True, slots=True)
class StageMemory:
    """The memory of one stage, beyond its inputs, for the simulation.

    Without it, operators run one by one, and each allocates its results. A backend that fuses operators writes less,
    keeps memory blocks between steps and holds a backward's arguments.

    ``moments``: the steps in order, each as the name of an FX node that the step computes, and the bytes that
    the stage has allocated and that are alive during the step. ``retained``: bytes kept between steps; a
    step's stages share them, so the largest value counts. ``released``: name of an input -> number of steps
    after which the stage releases the input, if nobody else holds it. Other arguments live until the stage
    returns.
    """

    moments: tuple[tuple[str, int], ...]
    retained: int = 0
    released: Mapping[str, int] = field(default_factory=dict)


MEASURES = ("seconds", "products")
"""The units in which recomputation may be counted."""


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """The options of a partitioner."""

    solver: str = "scipy"
    """Name of a registered minimum-cut solver."""
    static_inputs: frozenset[InputKind] = field(default=_STATIC)
    """Kinds of inputs that stay alive anyway, so that saving them is free."""
    unbacked_hint: int = 64
    """Value of a symbol without a hint when sizes are compared."""
    worst_case: bool = False
    """A symbol has the upper bound of its range, if there is one."""
    recompute_reductions: bool = False
    """Reductions may be recomputed."""
    recompute_views: bool = True
    """Views may be recomputed."""
    narrow: bool = True
    """Save values in a smaller dtype that holds them exactly (``joint.narrow``)."""
    rewriting: float | None = None
    """Cost of writing a recomputed value to memory again, where a product of the backward reads it, beside the cost 1 of saving
    the value. 0.0: as little memory as possible. Up to 1.0: a value is saved if its recomputation needs further values of about
    its size. Above 1.0: all such values that the forward has in memory are saved, which takes most memory and least time.
    None: 0.9 for values on a GPU, 0.0 for others.
    """
    redraw: bool = True
    """Recompute random numbers from the saved state of the generator (``joint.rng_replay``)."""
    budget: float | int | None = None
    """Bound of the simulated peak of forward and backward, for the partitioners ``budget`` and ``ilp``.

    A float from 0.0 (the lowest peak that recomputation reaches) to 1.0 (the peak of ``save_all``), or an int in bytes.
    """
    time_overhead: float | None = None
    """Bound of the estimated seconds of recomputation, as a fraction of the step's seconds, in place of ``budget``."""
    cost: str = "seconds"
    """Unit in which the partitioner ``budget`` compares recomputation: ``"seconds"`` or ``"products"``.

    ``"products"`` are the flops of matrix products, convolutions and attention; among equal flops, seconds decide.
    This unit suits runtimes that fuse all other operators.
    """
    device: str | Device = "cpu"
    """Device for estimates of time: a name in ``DEVICES``, or a ``Device``."""
    seconds: Callable[[Node], float | None] | None = None
    """Function from a node to measured seconds, or None for unknown nodes."""
    policy: Callable[[Node], str | None] | None = None
    """Function from a node to a recomputation tag or None; it takes precedence over tags in the graph."""
    runtime: Callable[[StageGraph, PartitionOptions], StageMemory] | None = None
    """Function by which ``simulate`` gets the memory of a stage. None: ``simulate`` runs operator by operator."""
    scratch: Callable[[Node], int] | None = None
    """Function from a node to the bytes that its operator uses beyond its results (``Measured().scratch``)."""

    def __post_init__(self) -> None:
        """Check values whose errors would be noticed late or never.

        Raises:
            TypeError: if ``budget`` or ``time_overhead`` is no number.
            ValueError: if ``budget`` or ``time_overhead`` is out of range, if both are given, or if ``cost``
                is unknown.
            LookupError: if no device has the name.
        """
        _check_bounds(self.budget, self.time_overhead)
        if self.cost not in MEASURES:
            msg = f"recomputation is counted in {' or '.join(map(repr, MEASURES))}, not in {self.cost!r}"
            raise ValueError(msg)
        if isinstance(self.device, str) and self.device not in DEVICES:
            msg = (
                f"no device is called {self.device!r}; known are {', '.join(DEVICES)}. "
                "Describe another with fxstack_partition.Device"
            )
            raise LookupError(msg)


def _check_bounds(budget: object, overhead: object) -> None:
    """Raise TypeError or ValueError if ``budget`` or ``time_overhead`` is no valid number, or if both are given."""
    for name, value in (("budget", budget), ("time_overhead", overhead)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            msg = f"{name} is a number, not {value!r}"
            raise TypeError(msg)
    if budget is not None and overhead is not None:
        msg = "give budget or time_overhead, not both"
        raise ValueError(msg)
    if isinstance(budget, float) and not 0.0 <= budget <= 1.0:
        msg = f"a budget is a fraction from 0.0 to 1.0 (float) or a number of bytes (int), not {budget!r}"
        raise ValueError(msg)
    if isinstance(budget, int) and budget < 0:
        msg = f"a budget of {budget} bytes is negative"
        raise ValueError(msg)
    if isinstance(overhead, int | float) and not overhead >= 0:
        msg = f"time_overhead is a fraction of the step's seconds, not {overhead!r}"
        raise ValueError(msg)
