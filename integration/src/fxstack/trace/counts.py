"""Count the events of a process in numbers and in words: compiled functions, breaks, recompilations and seconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from fxstack.trace import records


class Counts:
    """Counts of the events of a record, or of the running process."""

    def __init__(self, bodies: Iterable[records.Body] = ()) -> None:
        self.places: dict[str, None] = {}
        """The functions with compiled frames or graphs, in order."""
        self.graphs: set[int] = set()
        self.breaks: Counter[records.Break] = Counter()
        self.recompilations: list[records.Recompilation] = []
        self.plain: dict[str, str] = {}
        """Functions that run in plain Python, with the reason."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.stored: Counter[bool] = Counter()
        """Look-ups of programs on disk: found or not."""
        self.regions: list[records.Region] = []
        for body in bodies:
            self.add(body)

    def add(self, body: records.Body) -> None:
        """Count one record of a trace. Records that ``sentences`` does not need are left out."""
        match body:
            case records.Frame(verdict="plain"):
                self.plain[body.place] = body.why
            case records.Frame(verdict="compiled"):
                self.places[body.place] = None
            case records.Graph():
                self.places[body.place] = None
                self.graphs.add(body.graph)
            case records.Break():
                self.breaks[body] += 1
            case records.Recompilation():
                self.recompilations.append(body)
            case records.Spent():
                self.seconds[body.stage] += body.seconds
            case records.Region():
                self.regions.append(body)
            case records.Looked():
                self.stored[body.found] += 1
                if body.found:
                    self.graphs.add(body.graph)

    def sentences(self, most: int) -> list[str]:
        """Return the counts in plain words, with at most ``most`` functions, breaks and recompilations."""
        functions, graphs = many(len(self.places), "function"), many(len(self.graphs), "graph")
        breaks = many(self.breaks.total(), "graph break")
        recompilations = many(len(self.recompilations), "recompilation")
        lines = [f"{functions} compiled into {graphs}, with {breaks} and {recompilations}."]
        if stored := self.stored[True]:
            lines.append(f"{many(stored, 'program')} came from the cache on disk.")
        shared = [
            f"{many(each.calls, 'equal part')} of {each.place} with {many(each.nodes, 'operator')} each"
            + (
                f" did not share one compilation: {each.refusal}."
                if each.refusal
                else " share one compilation."
            )
            for each in self.regions
        ]
        plain = [f"In plain Python: {at}: {why.partition(chr(10))[0]}" for at, why in self.plain.items()]
        broken = [
            f"{many(count, 'break')} at {where(record)} because {record.title.partition('] ')[2]}. Fix: {record.fix}"
            for record, count in self.breaks.most_common()
        ]
        repeated = dict.fromkeys(
            f"{each.place} was compiled again because {each.failures[0].source} changed: {each.failures[0].found}."
            for each in self.recompilations
        )
        kinds = {"region": shared, "function": plain, "graph break": broken, "recompilation": list(repeated)}
        for noun, rows in kinds.items():
            lines += rows[:most]
            if len(rows) > most:
                lines.append(f"And {many(len(rows) - most, f'other {noun}')}.")
        return lines


def where(record: records.Break) -> str:
    """Return the user's innermost line of a break, as ``file:line in function``, for the sentences of reports."""
    if not record.stack:
        return "an unknown line"
    line = record.stack[-1]
    return f"{line.file}:{line.line} in {line.function}"


def many(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
