"""The numbers of a report, computed from a record: counts, shares of the step, bandwidth, seconds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from fxstack.trace import records
from fxstack.trace.counts import Counts, many
from fxstack.trace.session import Session
from fxstack_inductor.cost.quantities import bytes_text

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "einsum", "matmul", "_int_mm", "_scaled_mm")
MOST = 5
"""Maximum number of items of a kind that the first screen names."""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step of a program. Its ``seconds`` are measured if ``measured`` is True, otherwise predicted."""

    program: records.Program
    step: records.Step
    seconds: float
    measured: bool

    @property
    def rate(self) -> float:
        """Return the share of the machine's memory bandwidth that the step reaches."""
        moved = self.step.read_bytes + self.step.written_bytes
        return (
            moved / self.seconds / self.program.bandwidth if self.seconds and self.program.bandwidth else 0.0
        )


@dataclass
class Figures:
    """The figures of one session."""

    session: Session

    @cached_property
    def frames(self) -> list[records.Frame]:
        return self.session.of(records.Frame)

    @cached_property
    def counts(self) -> Counts:
        return Counts(event.body for event in self.session.events)

    @cached_property
    def graphs(self) -> dict[int, list[records.Graph]]:
        """Return the graphs of all stages, by the number of their captured graph."""
        by_number: defaultdict[int, list[records.Graph]] = defaultdict(list)
        for graph in self.session.of(records.Graph):
            by_number[graph.graph].append(graph)
        return dict(by_number)

    @cached_property
    def steps(self) -> list[TimedStep]:
        """Return the steps of all programs.

        A step of a measured call has measured seconds, any other step predicted seconds.
        """
        measured = {
            (each.graph, each.role, step.name): step.seconds
            for each in self.session.of(records.Measured)
            for step in each.steps
        }
        timed = []
        for program in self.session.of(records.Program):
            for step in program.steps:
                seconds = measured.get((program.graph, program.role, step.name))
                known = seconds is not None
                timed.append(
                    TimedStep(program, step, seconds if seconds is not None else step.predicted, known)
                )
        return timed

    def shares(self) -> dict[tuple[str, int], float]:
        """Return (file, line) -> share (0 to 1) of the seconds of all steps.

        A line's share includes the functions that it calls.
        """
        total = sum(step.seconds for step in self.steps) or 1.0
        by_line: defaultdict[tuple[str, int], float] = defaultdict(float)
        for step in self.steps:
            stacks = step.step.stacks
            for stack in stacks:
                for file, line in {(line.file, line.line) for line in stack}:
                    by_line[file, line] += step.seconds / total / len(stacks)
        return dict(by_line)

    # --- the first screen ---------------------------------------------------------------------------------

    def sentences(self) -> list[str]:
        """Return the most important facts of the session, in plain words."""
        return [*self.counts.sentences(MOST), *self._times(), *self._memory()]

    def _times(self) -> list[str]:
        """Return sentences about the seconds of steps, measured if possible: products, kernels, the slowest step."""
        timed = [step for step in self.steps if step.measured] or self.steps
        total = sum(step.seconds for step in timed)
        if not total:
            return []
        kind = "measured" if timed[0].measured else "predicted"
        products = sum(s.seconds for s in timed if is_product(s.step)) / total
        kernels = [s for s in timed if s.step.kernel]
        lines = [f"{products:.0%} of the {kind} seconds of all steps are matrix products."]
        if kernels and kind == "measured" and sum(s.seconds for s in kernels):
            rate = sum(s.rate * s.seconds for s in kernels) / sum(s.seconds for s in kernels)
            share = sum(s.seconds for s in kernels) / total
            cached = ": their data are in caches" if rate > 1 else ""
            lines.append(
                f"Kernels take {share:.0%} and reach {rate:.0%} of the memory bandwidth ({kind}{cached})."
            )
        slowest = max(timed, key=lambda s: s.seconds)
        lines.append(
            f"The slowest step is {slowest.step.name} ({', '.join(slowest.step.origins[:3])}) of "
            f"{slowest.program.place}, {slowest.program.role}: {slowest.seconds / total:.0%}."
        )
        return lines

    def _memory(self) -> list[str]:
        """Return the sentence about saved and recomputed tensors; nothing if no graph was partitioned."""
        cuts = self.session.of(records.Cut)
        if not cuts:
            return []
        saved = sum(value.bytes for cut in cuts for value in cut.saved)
        recomputed = sum(len(cut.recomputed) for cut in cuts)
        return [
            f"The forward saves {bytes_text(saved)} for the backward; {many(recomputed, 'tensor')} recomputed."
        ]


def is_product(step: records.Step) -> bool:
    """Return whether a step computes a matrix product, by a library or by a kernel of fxstack."""
    return any(origin.rpartition(".")[2].rstrip("_0123456789") in PRODUCTS for origin in step.origins)
