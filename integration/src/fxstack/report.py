"""HTML reports: of one compiled callable, and of everything that a process compiled (``FXSTACK_REPORT``)."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from fxstack.api import compile_log
from fxstack.debug.output import Shown
from fxstack.debug.summary import Summary
from fxstack.log import CompileLog
from fxstack_interchange import StageGraph, show

STAGES = ("capture", "functionalize", "partition", "inductor")
INDEX = "index.html"


def stage_seconds(log: CompileLog) -> dict[str, float]:
    """Return the seconds of each stage, in pipeline order."""
    return {stage: log.seconds(stage) for stage in STAGES}


def write_report(
    compiled: Callable[..., Any],
    path: str | Path,
    *,
    title: str = "fxstack compilation report",
    facts: Mapping[str, str] | None = None,
    pictures: Sequence[str | Path] = (),
) -> None:
    """Write the report of a callable from ``fxstack.compile`` to ``path``.

    The page says what compiled, which lines broke the graph and why, why code was compiled again, where the time
    went, and shows every stage graph. ``facts`` become a table at the top, with ``pictures`` (paths relative to the
    report) below it.
    """
    log = compile_log(compiled)
    functions: dict[str, list[tuple[str, str]]] = {}
    for number, graph in log.graphs:
        functions.setdefault(log.captured_of(number).place, []).append(_described(number, graph))
    page = _page(title, Summary.of_log(log), functions, facts, [Path(picture).name for picture in pictures])
    Path(path).write_text(page, encoding="utf-8")


def write_process_report(folder: Path, summary: Summary, shown: Sequence[Shown]) -> None:
    """Write the page of this process into ``folder``, and an index of the pages of all processes there."""
    functions: dict[str, list[tuple[str, str]]] = {}
    for artefact in shown:
        functions.setdefault(artefact.place, []).append((artefact.heading, artefact.text))
    folder.mkdir(parents=True, exist_ok=True)
    name = f"process-{os.getpid()}.html"
    title = f"fxstack: process {os.getpid()}"
    (folder / name).write_text(_page(title, summary, functions), encoding="utf-8")
    pages = sorted(path.name for path in folder.glob("process-*.html"))
    links = "\n".join(f'<li><a href="{html.escape(page)}">{html.escape(page)}</a></li>' for page in pages)
    head = '<!doctype html><meta charset="utf-8"><title>fxstack</title>'
    (folder / INDEX).write_text(f"{head}<h1>fxstack</h1>\n<ul>\n{links}\n</ul>\n", encoding="utf-8")


def _page(
    title: str,
    summary: Summary,
    functions: Mapping[str, Sequence[tuple[str, str]]],
    facts: Mapping[str, str] | None = None,
    pictures: Sequence[str] = (),
) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fxstack"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    seconds = {stage: summary.seconds.get(stage, 0.0) for stage in STAGES}
    return environment.get_template("report.html").render(
        title=title,
        sentences=summary.sentences(),
        facts=dict(facts or {}),
        pictures=pictures,
        seconds=seconds,
        longest=max(*seconds.values(), 1e-9),
        lists=summary.lists(),
        functions=functions,
    )


def _described(number: int, graph: StageGraph) -> tuple[str, str]:
    nodes = graph.graph_module.graph.nodes
    operations = sum(node.op not in ("placeholder", "output") for node in nodes)
    return f"graph {number}, {graph.signature.stage.value}: {operations} operations", show(graph)
