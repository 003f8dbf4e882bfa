"""Find the parts of a sequence that repeat several times in a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

_WINDOW = 6
"""The number of items that are compared at once when periods are guessed."""
_MAX_PERIODS = 8
"""The number of guessed periods that are tried."""


@dataclass(frozen=True, slots=True)
class Run:
    """The items ``start:end`` of a sequence, in which each item equals the item ``period`` places later."""

    start: int
    end: int
    period: int

    @property
    def copies(self) -> int:
        return (self.end - self.start) // self.period


def runs(numbers: Sequence[int], *, period: int, copies: int) -> list[Run]:
    """Return runs with at least ``copies`` copies of at least ``period`` items, the longest runs first.

    Runs of different periods may overlap.
    """
    found = [
        run
        for distance in _guess_periods(numbers, period, copies)
        for run in _runs_of_period(numbers, distance)
        if run.copies >= copies
    ]
    return sorted(found, key=lambda run: (run.start - run.end, run.period))


def number_equal(items: Sequence[Hashable | None]) -> list[int]:
    """Return a number for each item, equal for equal items. An item that is None gets a negative number of its own."""
    known: dict[Hashable, int] = {}
    return [
        -1 - index if item is None else known.setdefault(item, len(known)) for index, item in enumerate(items)
    ]


def _guess_periods(numbers: Sequence[int], least: int, copies: int) -> list[int]:
    """Return the most frequent distances between equal windows, at least ``least``."""
    last: dict[tuple[int, ...], int] = {}
    distances: Counter[int] = Counter()
    for index in range(len(numbers) - _WINDOW + 1):
        window = tuple(numbers[index : index + _WINDOW])
        if window in last:
            distances[index - last[window]] += 1
        last[window] = index
    # A window that occurs twice in one period gives parts of the period: the period is their sum.
    frequent = [distance for distance, _ in distances.most_common(_MAX_PERIODS)]
    sums = {first + second for first in frequent for second in frequent}
    candidates = dict.fromkeys([*frequent, *sorted(sums)])
    return [distance for distance in candidates if least <= distance <= len(numbers) // copies]


def _runs_of_period(numbers: Sequence[int], period: int) -> Iterator[Run]:
    """Yield the longest runs of one period."""
    start = 0
    for index in range(len(numbers) - period + 1):
        last = index + period == len(numbers)
        if not last and numbers[index] == numbers[index + period]:
            continue
        if index > start:
            yield Run(start, index + period, period)
        start = index + 1
