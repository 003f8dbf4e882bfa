"""The tables of ``gpu.py``: a short one of what tells most, and one line for each row."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

MOST = 40
"""Lines of the short table."""
ROWS = {"kernels": 7, "attention": 6, "products": 3, "real": 4}
"""Sections of the short table, and how many of their rows it has."""
FAILURES = 4
SYSTEMS = ("eager", "torch.compile", "fxstack")
Row = dict[str, Any]


@dataclass(frozen=True)
class Figures:
    """One row's figures of one mode of the compilers, by system."""

    row: Row
    compiled: str = "default"

    def of(self, unit: str) -> list[float | None]:
        names = ("eager", *(f"{system} {self.compiled}" for system in SYSTEMS[1:]))
        return [self.row.get(f"{name} {unit}") for name in names]

    def ratio(self, unit: str = "ms") -> float | None:
        """fxstack's figure divided by torch.compile's."""
        _, theirs, ours = self.of(unit)
        return ours / theirs if ours and theirs else None

    def share(self) -> float | None:
        """The part of fxstack's step in which its kernels run."""
        step, kernels = self.of("ms")[2], self.of("kernels_ms")[2]
        return kernels / step if step and kernels else None


def rows_of(folder: Path, section: str) -> list[Row]:
    path = folder / f"{section}.json"
    return list(json.loads(path.read_text())["rows"]) if path.exists() else []


def full(folder: Path, sections: Iterable[str]) -> str:
    """One line for each row, and one for each section that did not end well."""
    lines: list[str] = []
    for name in sections:
        lines += [f"{name}: {_line(row)}" for row in rows_of(folder, name)]
        failed = folder / f"{name}.failed"
        if failed.exists():
            lines.append(f"{name}: {failed.read_text()}, see {name}.log")
    return "\n".join(lines)


def _line(row: Row) -> str:
    rest = {k: v for k, v in row.items() if k != "case"}
    shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {str(v)[:160]}" for k, v in rest.items())
    return f"{row['case']}: {', '.join(shown)}"


def short(folder: Path, sections: Sequence[str]) -> str:
    """At most ``MOST`` lines: where fxstack is slowest beside torch.compile, means, and what failed."""
    lines = [_versions(rows_of(folder, "environment")), *_header()]
    for section, most in ROWS.items():
        lines += _slowest(section, rows_of(folder, section), most)
    lines += _groups(rows_of(folder, "models"))
    lines += [*_first_steps(rows_of(folder, "compile")), *_launches(rows_of(folder, "launch"))]
    lines += [f"opdb: {_line(row)}" for row in rows_of(folder, "opdb") if row["case"] == "total"]
    lines += _draws(rows_of(folder, "dropout"))
    ends = _ends(folder, sections)
    kept = lines[: MOST - len(ends)]
    return "\n".join([*kept, *ends])


def _versions(rows: list[Row]) -> str:
    return _line(rows[0]) if rows else "no versions"


def _header() -> list[str]:
    columns = ("case", *SYSTEMS, "ratio", "notes")
    return [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]


def _cells(case: str, figures: Sequence[float | None], ratio: float | None, notes: Iterable[str]) -> str:
    shown = ["" if f is None else f"{f:.3g}" for f in (*figures, ratio)]
    return f"| {case} | {' | '.join(shown)} | {', '.join(notes)} |"


def _slowest(section: str, rows: list[Row], most: int) -> list[str]:
    """The rows with the largest ratios of milliseconds, and the mean of all."""
    found = [(f, r) for f in map(Figures, rows) if (r := f.ratio()) is not None]
    found.sort(key=lambda pair: -pair[1])
    lines = [_cells(f"{section}: {f.row['case']}", f.of("ms"), r, _notes(f)) for f, r in found[:most]]
    if len(found) > most:
        mean = statistics.geometric_mean(r for _, r in found)
        lines.append(_cells(f"{section}: mean of {len(found)}", (None,) * 3, mean, ()))
    return lines


def _notes(figures: Figures) -> list[str]:
    """The means of one row, and whether a result was wrong."""
    return [*_means([figures]), *(key for key in figures.row if key.endswith(" wrong"))]


def _means(members: Sequence[Figures]) -> list[str]:
    """How models' kernels, peaks and first steps are beside torch.compile's, and which part of a step the kernels take."""
    columns = {
        "kernels": [m.ratio("kernels_ms") for m in members],
        "kernels of the step": [m.share() for m in members],
        "peak": [m.ratio("peak_mib") for m in members],
        "first step": [m.ratio("first_s") for m in members],
    }
    known = {name: [v for v in column if v] for name, column in columns.items()}
    return [f"{name} {statistics.geometric_mean(column):.2f}" for name, column in known.items() if column]


def _groups(rows: list[Row]) -> list[str]:
    """One line for each dtype, mode and mode of the compilers: means, and the slowest model."""
    groups: dict[str, list[Figures]] = {}
    for row in rows:
        setting = str(row["case"]).split()[1:]
        figures = Figures(row, *setting[2:])
        if figures.ratio() is not None:
            groups.setdefault(" ".join(setting), []).append(figures)
    return [_group(name, members) for name, members in groups.items()]


def _group(name: str, members: list[Figures]) -> str:
    slowest = max(members, key=lambda m: m.ratio() or 0.0)
    notes = [*_means(members), f"most {slowest.row['case'].split()[0]} {slowest.ratio():.2f}"]
    means = [_mean(column) for column in zip(*(m.of("ms") for m in members), strict=True)]
    ratio = statistics.geometric_mean(m.ratio() or 1.0 for m in members)
    return _cells(f"models: {name}, mean of {len(members)}", means, ratio, notes)


def _mean(values: Sequence[float | None]) -> float | None:
    """The geometric mean, unless a value is missing."""
    known = [v for v in values if v]
    return statistics.geometric_mean(known) if len(known) == len(values) else None


def _first_steps(rows: list[Row]) -> list[str]:
    found = [f for f in map(Figures, rows) if f.ratio("first_s")]
    if not found:
        return []
    mean = statistics.geometric_mean(f.ratio("first_s") or 1.0 for f in found)
    return [_cells(f"seconds to a first step, mean of {len(found)}", (None,) * 3, mean, ())]


def _launches(rows: list[Row]) -> list[str]:
    systems = {str(row["case"]).removesuffix(" default"): row for row in rows}
    lines = []
    for unit in ("call_us", "launch_us"):
        figures = [systems.get(s, {}).get(unit) for s in SYSTEMS]
        ratio = figures[2] / figures[1] if figures[1] and figures[2] else None
        if any(figures):
            lines.append(_cells(f"host: {unit}", figures, ratio, ()))
    return lines


def _draws(rows: list[Row]) -> list[str]:
    wrong = sum(key.endswith("wrong") for row in rows for key in row)
    return [f"dropout: {len(rows)} cases, {wrong} wrong"] if rows else []


def _ends(folder: Path, sections: Sequence[str]) -> list[str]:
    """What failed, was wrong, and is left for a further call."""
    failed, left = [], []
    for section in sections:
        rows = rows_of(folder, section)
        failed += [
            f"{section}: {row['case']}: {key}: {str(value)[:120]}"
            for row in rows
            for key, value in row.items()
            if key.endswith(("failed", "wrong")) and value
        ]
        if not (folder / f"{section}.done").exists():
            left.append(f"{section} ({sum('skipped' in row for row in rows)} cases skipped)")
    lines = failed[:FAILURES]
    if len(failed) > FAILURES:
        lines.append(f"{len(failed) - FAILURES} further failures")
    return [*lines, *([f"Left for a further call: {', '.join(left)}."] if left else [])]
