"""What a report says in numbers, computed from a record: counts, shares of the step, bandwidth, seconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

from fxstack.trace import records
from fxstack.trace.session import Session

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "einsum", "matmul", "_int_mm", "_scaled_mm")
MOST = 5
"""Items of a kind that the first screen names."""


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step of a program with its seconds. ``measured``: else they are predicted."""

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
    def places(self) -> list[str]:
        """Return the functions with compiled frames or graphs, in order."""
        compiled = [frame.place for frame in self.frames if frame.verdict == "compiled"]
        return list(dict.fromkeys([*compiled, *(g.place for g in self.session.of(records.Graph))]))

    @cached_property
    def graphs(self) -> dict[int, list[records.Graph]]:
        """Return the graphs of each captured graph, by its number."""
        found: defaultdict[int, list[records.Graph]] = defaultdict(list)
        for graph in self.session.of(records.Graph):
            found[graph.graph].append(graph)
        return dict(found)

    @cached_property
    def breaks(self) -> list[tuple[records.Break, int]]:
        return Counter(self.session.of(records.Break)).most_common()

    @cached_property
    def recompilations(self) -> list[records.Recompilation]:
        return self.session.of(records.Recompilation)

    @cached_property
    def plain(self) -> dict[str, str]:
        """Return the functions in plain Python, with the reason."""
        return {f.place: f.why for f in self.frames if f.verdict == "plain"}

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage."""
        spent: defaultdict[str, float] = defaultdict(float)
        for each in self.session.of(records.Spent):
            spent[each.stage] += each.seconds
        return dict(spent)

    @cached_property
    def steps(self) -> list[TimedStep]:
        """Return the steps of all programs: with measured seconds where a call was measured, else predicted ones."""
        measured = {
            (each.graph, each.role, step.name): step.seconds
            for each in self.session.of(records.Measured)
            for step in each.steps
        }
        found = []
        for program in self.session.of(records.Program):
            for step in program.steps:
                seconds = measured.get((program.graph, program.role, step.name))
                known = seconds is not None
                found.append(
                    TimedStep(program, step, seconds if seconds is not None else step.predicted, known)
                )
        return found

    def shares(self) -> dict[tuple[str, int], float]:
        """Return the share of the steps' seconds that each line of the program takes, with what it calls."""
        total = sum(step.seconds for step in self.steps) or 1.0
        found: defaultdict[tuple[str, int], float] = defaultdict(float)
        for step in self.steps:
            stacks = step.step.stacks
            for stack in stacks:
                for file, line in {(line.file, line.line) for line in stack}:
                    found[file, line] += step.seconds / total / len(stacks)
        return dict(found)

    # --- the first screen ---------------------------------------------------------------------------------

    def sentences(self) -> list[str]:
        """Return what matters, in plain words."""
        return [*self._counts(), *self._breaks(), *self._recompiled(), *self._times(), *self._memory()]

    def _counts(self) -> list[str]:
        graphs = len(self.graphs)
        functions = len({f.place for f in self.frames if f.verdict == "compiled"} or set(self.places))
        stored = sum(look.found for look in self.session.of(records.Looked))
        text = (
            f"{_many(functions, 'function')} compiled into {_many(graphs, 'graph')}, with "
            f"{_many(sum(count for _, count in self.breaks), 'graph break')} and "
            f"{_many(len(self.recompilations), 'recompilation')}."
        )
        lines = [text]
        if stored:
            lines.append(f"{_many(stored, 'program')} came from the cache on disk.")
        for place, why in list(self.plain.items())[:MOST]:
            lines.append(f"In plain Python: {place}: {_first(why)}")
        return lines

    def _breaks(self) -> list[str]:
        lines = []
        for record, count in self.breaks[:MOST]:
            title = record.title.partition("] ")[2]
            lines.append(f"{_many(count, 'break')} at {where(record)} because {title}. Fix: {record.fix}")
        return lines

    def _recompiled(self) -> list[str]:
        lines = []
        for again in self.recompilations[:MOST]:
            last = again.failures[-1]
            lines.append(f"{again.place} was compiled again because {last.source} changed: {last.found}.")
        return lines

    def _times(self) -> list[str]:
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
        cuts = self.session.of(records.Cut)
        if not cuts:
            return []
        saved = sum(value.bytes for cut in cuts for value in cut.saved)
        again = sum(len(cut.recomputed) for cut in cuts)
        return [
            f"The forward saves {size_text(saved)} for the backward; {_many(again, 'tensor')} recomputed."
        ]


def is_product(step: records.Step) -> bool:
    """Return whether a step is a matrix product of a library or a kernel that computes one."""
    return any(origin.rpartition(".")[2].rstrip("_0123456789") in PRODUCTS for origin in step.origins)


def where(record: records.Break) -> str:
    """Return the user's innermost line of a break, as ``file:line in function``."""
    if not record.stack:
        return "an unknown line"
    line = record.stack[-1]
    return f"{line.file}:{line.line} in {line.function}"


def size_text(count: float) -> str:
    """Return a number of bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def time_text(seconds: float) -> str:
    """Return seconds for people."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _first(text: str) -> str:
    return text.partition("\n")[0]
