"""Charts as SVG: memory over time, partitioners against each other, compile time as a flame chart."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from fxstack.trace import records
from fxstack.trace.session import Session
from fxstack_inductor.cost.quantities import bytes_text, seconds_text

WIDTH = 720
"""The width of a chart in its own units, and its smallest width in pixels (style.html).

On a narrow page a chart scrolls, so its letters stay large.
"""
_ROW = 22
_COLORS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb")
"""Paul Tol's bright colours, which people with colour blindness can tell apart."""
_LETTER = 6.8
"""The width of a letter, in units of the chart."""


def line_chart(series: Sequence[tuple[str, Sequence[float]]], unit: str) -> Markup:
    """Return a chart with one line per series, each as wide as the chart. The largest value is written at the top."""
    drawn = [(label, values) for label, values in series if len(values) > 1]
    if not drawn:
        return Markup("")
    height, top = 180, max(max(values) for _, values in drawn) or 1.0
    parts = [f'<text x="4" y="12">{bytes_text(top) if unit == "bytes" else f"{top:g}"}</text>']
    for number, (label, values) in enumerate(drawn):
        color = _COLORS[number % len(_COLORS)]
        last = len(values) - 1
        points = " ".join(
            f"{WIDTH * k / last:.1f},{20 + height * (1 - value / top):.1f}" for k, value in enumerate(values)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        parts.append(
            Markup('<text x="{}" y="{}" fill="{}">{}</text>').format(8, 36 + 16 * number, color, label)
        )
    return _svg(parts, height + 24)


def scatter(rows: Sequence[records.Alternative]) -> Markup:
    """Return a chart of partitioners: recomputed operations on the x axis, peak memory on the y axis."""
    if not rows:
        return Markup("")
    height = 200
    most_operations = max(row.recomputed_operations for row in rows) or 1
    most_bytes = max(row.peak_bytes for row in rows) or 1
    parts = [
        '<text x="4" y="12">peak memory</text>',
        f'<text x="{WIDTH - 8}" y="{height + 34}" text-anchor="end">recomputed operations</text>',
        f'<path d="M4 18 V{height + 20} H{WIDTH}" fill="none" stroke="currentColor" opacity=".4"/>',
    ]
    for number, row in enumerate(rows):
        x = 12 + (WIDTH - 220) * row.recomputed_operations / most_operations
        y = 20 + height * (1 - row.peak_bytes / most_bytes)
        text = f"{row.partitioner}: {bytes_text(row.peak_bytes)}, {row.recomputed_operations:,} operations"
        color = _COLORS[number % len(_COLORS)]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>')
        # Labels of equal points would hide each other.
        parts.append(
            Markup('<text x="{}" y="{}" fill="{}">{}</text>').format(
                f"{x + 8:.1f}", f"{y + 4 + 13 * number:.1f}", color, text
            )
        )
    return _svg(parts, height + 40 + 13 * len(rows))


def flame(session: Session) -> Markup:
    """Return a flame chart of the seconds of compilation: functions, below them graphs, then stages, then passes."""
    chart = _Flame()
    for spent in session.of(records.Spent):
        path = (spent.place, f"graph {spent.graph}", spent.stage)
        for length in range(1, len(path) + 1):
            chart.add(path[:length], spent.seconds)
    for done in session.of(records.PassRun):
        parent = (done.place, f"graph {done.graph}", _stage_of(done.stage))
        chart.add((*parent, done.name), done.seconds)
    total = sum(chart.seconds[path] for path in chart.below[()])
    if not total:
        return Markup("")
    chart.draw((), 0.0, WIDTH / total)
    depth = max(len(path) for path in chart.seconds)
    return _svg(chart.parts, depth * _ROW + 4)


def _stage_of(stage: str) -> str:
    """Return the stage of the pipeline (``inductor``) for a stage name in a record of passes (``lower``,
    ``schedule``).
    """
    return {
        "joint": "functionalize",
        "inference": "functionalize",
        "lower": "inductor",
        "schedule": "inductor",
    }.get(stage, stage)


class _Flame:
    """The bars of a flame chart. A bar's path is a tuple of names, from the function down to the bar.

    ``seconds``: path -> time. ``below``: path -> the paths that are one name longer. ``parts``: the drawn
    bars as SVG.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self.below: defaultdict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        self.parts: list[str] = []

    def add(self, path: tuple[str, ...], seconds: float) -> None:
        """Add the seconds of a path, for example ``("step (train.py:31)", "graph 1", "partition", "min_cut")``."""
        if path not in self.seconds:
            self.below[path[:-1]].append(path)
        self.seconds[path] += seconds

    def draw(self, parent: tuple[str, ...], start: float, scale: float) -> None:
        """Add the bars of all paths below ``parent``, from pixel ``start`` to the right.

        ``()`` is the parent of the functions.

        ``scale``: pixels per second.
        """
        room = self.seconds[parent] if parent else float("inf")
        measured = sum(self.seconds[path] for path in self.below[parent])
        scale *= min(1.0, room / measured) if measured else 1.0  # passes are timed inside of their stage
        for path in self.below[parent]:
            width = self.seconds[path] * scale
            if width >= 0.5:
                self.parts.append(self._bar(path, start, width))
                self.draw(path, start, scale)
            start += width

    def _bar(self, path: tuple[str, ...], start: float, width: float) -> Markup:
        """Return the bar of a path in SVG, with its name if the name fits, and a tooltip."""
        y = _ROW * (len(path) - 1)
        color = _COLORS[hash_text(path[-1]) % len(_COLORS)]
        label = path[-1] if len(path[-1]) * _LETTER < width else ""
        title = f"{' > '.join(path)}: {seconds_text(self.seconds[path])}"
        return Markup(
            '<g><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" fill="{}" opacity=".55"/>'
            '<text x="{}" y="{}">{}</text></g>'
        ).format(title, f"{start:.1f}", y, f"{width:.1f}", _ROW - 2, color, f"{start + 3:.1f}", y + 14, label)


def hash_text(text: str) -> int:
    """Return a number from ``text`` that is the same in each process, unlike ``hash``. It selects a colour."""
    return sum(map(ord, text))


def _svg(parts: Iterable[str], height: float) -> Markup:
    """Return a chart as HTML: an SVG image that scrolls if it is wider than the page."""
    inside = "".join(parts)
    return Markup(  # noqa: S704 - texts of the program are escaped above
        f'<div class="scroll"><svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{inside}</svg></div>'
    )
