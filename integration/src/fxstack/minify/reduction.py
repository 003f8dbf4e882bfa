"""Delta debugging of a case: fewer operations, fewer results, smaller tensors, simpler inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fxstack.minify.cases import Case
from fxstack.minify.compare import Failure
from fxstack.minify.script import expressions, rename_inputs, shared_memory
from fxstack.minify.stages import Setup
from fxstack.minify.surgery import (
    calls,
    drop_one,
    first_calls,
    node_values,
    shrink_sizes,
    without_first_calls,
    without_gradients,
)
from fxstack.minify.trials import Trials

# Limits: sizes shrink only where all dimensions and numbers of one size can be less together.


@dataclass
class Reduction:
    """Makes ``case`` smaller while it fails like ``failure``. ``tell`` gets a line of progress."""

    case: Case
    setup: Setup
    failure: Failure
    trials: Trials
    tell: Callable[[str], None]

    def run(self) -> None:
        """Reduce until no operation of ``surgery`` leaves a case that fails in the same way."""
        self.fails(without_gradients(self.case))
        self._shorten()
        self._cut()
        self.fails(without_gradients(self.case))
        self._each(lambda: drop_one(self.case, self._values()))
        self._each(lambda: shrink_sizes(self.case))
        self._each(lambda: drop_one(self.case, self._values()))
        self.case = rename_inputs(self.case)

    def fails(self, case: Case, inputs: list[str] | None = None) -> bool:
        """Return whether ``case`` fails in the same way. If so and its inputs are its own, it is the new case."""
        attempt = self.trials.attempt(case, self.setup, inputs)
        if not self.failure.is_like(attempt.failure):
            return False
        if inputs is None:
            self.case = case
            self.tell(f"{case.size} operations, {self.trials.count} trials")
        return True

    def _values(self) -> dict[str, object]:
        """Return the value of each node by name, computed in eager in a child process; empty if the child dies."""
        case = self.case
        values: dict[str, object] = self.trials.forks.run(lambda _send: node_values(case)).value or {}
        return values

    def _shorten(self) -> None:
        """Find the least number of operations from the beginning that fails."""
        whole, low, high = self.case, 0, len(calls(self.case))
        while high - low > 1:
            middle = (low + high) // 2
            if self.fails(first_calls(whole, middle)):
                high = middle
            else:
                low = middle

    def _cut(self) -> None:
        """Find the greatest number of operations at the beginning whose values can be inputs."""
        whole, values = self.case, self._values()
        low, high = 0, len(calls(whole))
        while high - low > 1:
            middle = (low + high) // 2
            case = without_first_calls(whole, middle, values)
            if case is not None and self.fails(case):
                low = middle
            else:
                high = middle

    def _each(self, candidates: Callable[[], Iterator[Case]]) -> None:
        """Take each candidate that fails, until none does."""
        while any(self.fails(case) for case in candidates()):
            pass

    def inputs(self) -> list[str] | None:
        """Return an expression for each input with which the case still fails; None if no expressions fail."""
        shared = shared_memory(self.case.inputs)
        choices = [expressions(value, shared) for value in self.case.inputs]
        chosen = [options[0] for options in choices]
        if self.fails(self.case, chosen):
            return chosen
        chosen = [options[-1] for options in choices]
        if not self.fails(self.case, chosen):
            return None
        for position, options in enumerate(choices):
            for option in options[:-1]:
                candidate = [*chosen[:position], option, *chosen[position + 1 :]]
                if self.fails(self.case, candidate):
                    chosen = candidate
                    break
        return chosen
