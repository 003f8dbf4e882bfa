"""The options record of this package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch.fx import Node

from fxstack_interchange import InputKind, StageGraph
from fxstack_partition.budgets.runtime import StageMemory

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


MEASURES = ("seconds", "products")
"""The units in which recomputation may be counted."""


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """The options of a partitioner.

    ``solver`` names a registered minimum-cut solver. ``static_inputs``: the kinds of inputs that stay alive
    anyway, so that saving them is free. ``unbacked_hint``: the value of a symbol without a hint when sizes
    are compared. With ``worst_case`` a symbol has the upper bound of its range, if there is one.
    ``recompute_reductions`` and ``recompute_views`` widen or narrow the set of recomputable nodes.
    ``narrow``: save values in a smaller dtype that holds them exactly (``extraction.narrow``). ``redraw``:
    recompute random numbers from the saved state of the generator (``extraction.rng_replay``).

    ``budget`` is for ``budget`` and ``ilp``, and bounds the simulated peak of forward and backward: a float
    from 0.0 (the lowest peak that recomputation reaches) to 1.0 (the peak of ``save_all``), or an int in
    bytes. ``time_overhead`` bounds the estimated seconds of recomputation instead, as a fraction of the
    step's seconds. ``cost`` is the unit of recomputation: ``"seconds"``, or ``"products"``, the flops of
    matrix products, convolutions and attention, for runtimes that fuse the rest. ``device`` (a name in
    ``DEVICES`` or a ``Device``) is the device for estimates of time. ``seconds`` is a function from node to
    measured seconds, or None for unknown nodes. ``policy`` maps a node to a recomputation tag or None, and
    takes precedence over tags in the graph.

    ``runtime`` describes the execution of stages for ``simulate``: None for operator by operator, or a
    function from a stage and these options to a ``StageMemory``. ``scratch`` is a function from node to the
    bytes that its operator uses beyond its results (``Measured().scratch``).
    """

    solver: str = "scipy"
    static_inputs: frozenset[InputKind] = field(default=_STATIC)
    unbacked_hint: int = 64
    worst_case: bool = False
    recompute_reductions: bool = False
    recompute_views: bool = True
    narrow: bool = True
    redraw: bool = True
    budget: float | int | None = None
    time_overhead: float | None = None
    cost: str = "seconds"
    device: str | Device = "cpu"
    seconds: Callable[[Node], float | None] | None = None
    policy: Callable[[Node], str | None] | None = None
    runtime: Callable[[StageGraph, PartitionOptions], StageMemory] | None = None
    scratch: Callable[[Node], int] | None = None

    def __post_init__(self) -> None:
        """Check values whose errors would be noticed late or never.

        Raises:
            TypeError: if ``budget`` or ``time_overhead`` is no number.
            ValueError: if one is out of range, both are given, or ``cost`` is unknown.
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
