"""Render a record as one HTML page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import jinja2
from markupsafe import Markup

from fxstack.report import charts
from fxstack.report.figures import Figures, TimedStep
from fxstack.trace import records
from fxstack.trace.counts import where
from fxstack.trace.session import Session
from fxstack_inductor.cost.quantities import bytes_text, seconds_text

STAGES = ("capture", "functionalize", "partition", "inductor")


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a function. ``key`` (see ``_keys``) joins the line with operations and kernels.

    ``share`` is the line's share of all steps' seconds.
    """

    key: str
    number: int
    text: str
    share: float


@dataclass(frozen=True, slots=True)
class Part:
    """One captured graph of a function, with the graphs, programs and passes of later stages."""

    number: int
    graphs: list[records.Graph]
    programs: list[tuple[records.Program, list[TimedStep]]]
    cuts: list[records.Cut]
    passes: list[records.PassRun]
    memory: Markup
    """The chart of the memory."""
    pareto: Markup
    """The chart of other partitioners."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the program."""

    place: str
    frames: list[records.Frame]
    lines: list[SourceLine]
    parts: list[Part]
    breaks: int
    seconds: float


def render(
    title: str, session: Session, facts: Mapping[str, str] | None = None, pictures: Sequence[str] = ()
) -> str:
    """Return the page of a session."""
    figures = Figures(session)
    counts = figures.counts
    seconds = {stage: counts.seconds.get(stage, 0.0) for stage in STAGES} | counts.seconds
    return _template("report.html").render(
        title=title,
        start=session.start,
        skipped=session.skipped,
        sentences=figures.sentences(),
        facts=dict(facts or {}),
        pictures=pictures,
        seconds=seconds,
        longest=max(*seconds.values(), 1e-9),
        breaks=counts.breaks.most_common(),
        recompilations=counts.recompilations,
        plain=counts.plain,
        functions=_functions(figures),
        flame=charts.flame(session),
    )


def render_index(sessions: Sequence[Session], pages: Sequence[str]) -> str:
    """Return the page that shows the processes of a job together."""
    rows = [(page, session, Figures(session)) for page, session in zip(pages, sessions, strict=True)]
    return _template("index.html").render(rows=rows)


def _template(name: str) -> jinja2.Template:
    """Return a template of the package. Rendering raises if a name in the template has no value."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fxstack"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(size=bytes_text, time=seconds_text, where=where, keys=_keys)
    return environment.get_template(name)


def _keys(stacks: Iterable[Sequence[records.Line]]) -> str:
    """Return the lines of stacks as words, separated by spaces.

    The page joins source, operations and kernels by these words.
    """
    return " ".join({f"{line.file}:{line.line}": None for stack in stacks for line in stack})


def _functions(figures: Figures) -> list[Function]:
    """Return the functions of the program in the order of compilation, with the records about each."""
    shares = figures.shares()
    parts = _parts(figures)
    spent = figures.session.of(records.Spent)
    functions = []
    for place in figures.counts.places:
        frames = [frame for frame in figures.frames if frame.place == place]
        whole_frames = [frame for frame in frames if not frame.resumed] or frames
        breaks = sum(count for record, count in figures.counts.breaks.items() if _is_in(record, whole_frames))
        seconds = sum(each.seconds for each in spent if each.place == place)
        lines = _lines(parts.get(place, []), shares)
        functions.append(Function(place, frames, lines, parts.get(place, []), breaks, seconds))
    return functions


def _is_in(record: records.Break, frames: Sequence[records.Frame]) -> bool:
    functions = {(frame.file, frame.name.rpartition(".")[2]) for frame in frames}
    return any((line.file, line.function.rpartition(".")[2]) in functions for line in record.stack)


def _lines(parts: Sequence[Part], shares: Mapping[tuple[str, int], float]) -> list[SourceLine]:
    """Return the lines of the function and of the functions that it calls."""
    sources = dict.fromkeys(source for part in parts for graph in part.graphs for source in graph.sources)
    lines = []
    for source in sources:
        for number, text in enumerate(source.text.splitlines(), source.line):
            share = shares.get((source.file, number), 0.0)
            lines.append(SourceLine(f"{source.file}:{number}", number, text, share))
    return lines


def _parts(figures: Figures) -> dict[str, list[Part]]:
    """Return the captured graphs of each function, by the function's ``place``."""
    by_place: dict[str, list[Part]] = {}
    session = figures.session
    steps: defaultdict[int, list[TimedStep]] = defaultdict(list)
    for step in figures.steps:
        steps[id(step.program)].append(step)
    for number, graphs in figures.graphs.items():
        programs = [(program, steps[id(program)]) for program in session.of(records.Program, number)]
        cuts = session.of(records.Cut, number)
        rows = [row for each in session.of(records.Alternatives, number) for row in each.rows]
        part = Part(
            number=number,
            graphs=graphs,
            programs=programs,
            cuts=cuts,
            passes=session.of(records.PassRun, number),
            memory=_memory(session, number, cuts, [program for program, _ in programs]),
            pareto=charts.scatter(rows),
        )
        by_place.setdefault(graphs[0].place, []).append(part)
    return by_place


def _memory(
    session: Session, number: int, cuts: Sequence[records.Cut], programs: Sequence[records.Program]
) -> Markup:
    """Return the chart of the memory of one captured graph: predicted and measured."""
    series: list[tuple[str, Sequence[float]]] = [
        ("predicted, operator by operator", [moment.bytes for moment in cut.timeline]) for cut in cuts
    ]
    series += [
        (
            f"predicted for the kernels, {program.role}",
            [program.arena_bytes + m.bytes for m in program.memory],
        )
        for program in programs
    ]
    series += [
        (f"measured, {each.role} (without the arena)", [moment.bytes for moment in each.moments])
        for each in session.of(records.MeasuredMemory, number)
    ]
    return charts.line_chart(series, "bytes")
