"""A comparison as one HTML file: tables, explanations, and plots where matplotlib is installed."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from typing import Any

from fxstack_partition.report.compare import HEAD, Comparison, Row
from fxstack_partition.report.explain import explain
from fxstack_partition.report.plots import plot_cut, plot_pareto, plot_timeline

_STYLE = """
body { font-family: sans-serif; margin: 2em; max-width: 70em }
table { border-collapse: collapse } td, th { padding: 0.2em 0.8em; text-align: right }
td:first-child, th:first-child { text-align: left } tr:nth-child(even) { background: #f2f2f2 }
pre { overflow-x: auto; font-size: 85% } img { max-width: 100% }
"""
_HEAD = (*HEAD, "peak at")


def to_html(comparisons: Mapping[str, Comparison]) -> str:
    """Return a page with one section for each named comparison."""
    parts = [f"<!doctype html><meta charset='utf-8'><title>Partitions</title><style>{_STYLE}</style>"]
    for name, comparison in comparisons.items():
        parts.append(f"<h2>{escape(name)}</h2><p>{comparison.nodes} nodes</p>{_table(comparison)}")
        parts += [_image(partial(figure, comparison, name)) for figure in (plot_timeline, plot_pareto)]
        parts += [_details(row) for row in comparison.rows if row.partition is not None]
    return "\n".join(parts)


def _table(comparison: Comparison) -> str:
    head = "".join(f"<th>{name}</th>" for name in _HEAD)
    return f"<table><tr>{head}</tr>{''.join(map(_line, comparison.rows))}</table>"


def _line(row: Row) -> str:
    """Return a row of the table in HTML: the figures of a partition, or the error of its partitioner."""
    if row.error:
        columns = len(_HEAD) - 1
        return f"<tr><td>{escape(row.label)}</td><td colspan={columns}>{escape(row.error)}</td></tr>"
    cells = (*row.cells(), str(row.timeline.peak_at))
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _details(row: Row) -> str:
    """Return the part of the page that unfolds: the saved values with reasons, and a plot of the cut."""
    if row.partition is None:
        return ""
    text = escape(str(explain(row.partition)))
    cut = _image(partial(plot_cut, row.partition, row.label))
    summary = f"<summary>{escape(row.label)}: saved values and reasons</summary>"
    return f"<details>{summary}<pre>{text}</pre>{cut}</details>"


def _image(draw: Callable[[], Any]) -> str:
    """Return a plot as an HTML image; a sentence if matplotlib is missing."""
    data = io.BytesIO()
    try:
        figure = draw()
    except ImportError as error:
        return f"<p>{escape(str(error))}</p>"
    figure.savefig(data, format="png", dpi=100, metadata={"Software": None})
    return f"<p><img src='data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}'></p>"
