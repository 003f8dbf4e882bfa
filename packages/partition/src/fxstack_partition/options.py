"""The one options record of this package."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fxstack_interchange import InputKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import Node

    from fxstack_interchange import StageGraph
    from fxstack_partition.budgets.runtime import StageMemory

_STATIC = frozenset({InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR})


@dataclass(frozen=True, slots=True)
class Device:
    """What the estimate of time needs to know of a device."""

    flops_per_second: float
    bytes_per_second: float
    launch_seconds: float


DEVICES = {
    "cpu": Device(1e11, 2e10, 2e-6),
    "a100": Device(1.5e14, 1.5e12, 3e-6),
    "h100": Device(4.5e14, 3.0e12, 3e-6),
}
"""Orders of magnitude that a program reaches, not what a data sheet promises."""


MEASURES = ("seconds", "products")
"""What recomputation may be counted in."""


@dataclass(frozen=True, slots=True)
class PartitionOptions:
    """What a partitioner may be told.

    ``solver`` names a registered minimum-cut solver. ``static_inputs`` are the kinds of inputs that stay
    alive anyway, so that saving one costs nothing. ``unbacked_hint`` stands for a symbol without a hint
    when sizes are compared; with ``worst_case`` a symbol counts with the upper end of its range, where
    it has one. ``recompute_reductions`` and ``recompute_views`` widen or narrow what may be computed
    again in the backward. ``narrow`` lets values be saved in a smaller dtype that holds them exactly (see
    ``narrow``), ``redraw`` lets random numbers be drawn again from the kept state of the generator (see ``redraw``).

    ``budget`` is for ``budget`` and ``ilp``: a float from 0.0 to 1.0 is a place between the lowest peak that
    recomputation reaches and that of ``save_all``, an int is bytes; both bound the simulated peak of forward
    and backward. ``time_overhead`` bounds instead the estimated seconds of recomputation, as a fraction of
    those of the step. ``cost`` is what recomputation is counted in: ``"seconds"``, or ``"products"``, the operations of
    matrix products, convolutions and attention, for runtimes that fuse the rest. ``device`` (a name in ``DEVICES`` or
    a description) is what time is estimated for;
    ``seconds`` is a function from node to measured seconds, or None where it knows none. ``policy`` maps a
    node to a recomputation tag or None and takes precedence over the tags in the graph.

    ``runtime`` describes what executes the stages, for ``simulate``: None for operators one by one, or a function
    from a stage and these options to a ``StageMemory``. ``scratch`` is a function from node to the bytes that its operator
    uses inside beyond its results (``Measured().scratch``).
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
        """Check what a wrong value of would be noticed late, or not at all.

        Raises:
            TypeError: ``budget`` or ``time_overhead`` is no number.
            ValueError: they are out of range, or both are given; ``cost`` has no meaning.
            LookupError: no device has the name.
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
