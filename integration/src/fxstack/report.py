"""An HTML report of a compiled callable: stage times, and every stage graph as readable text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from fxstack.api import compile_log
from fxstack.log import CompileLog
from fxstack_interchange import StageGraph, show

STAGES = ("capture", "functionalize", "partition", "inductor")


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

    ``facts`` become a table at the top, with ``pictures`` (paths relative to the report) below it.
    """
    log = compile_log(compiled)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fxstack"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    page = environment.get_template("report.html").render(
        title=title,
        facts=dict(facts or {}),
        pictures=[Path(picture).name for picture in pictures],
        seconds=stage_seconds(log),
        graphs=[_describe(number, graph) for number, graph in log.graphs],
    )
    Path(path).write_text(page, encoding="utf-8")


def _describe(number: int, graph: StageGraph) -> dict[str, Any]:
    nodes = graph.graph_module.graph.nodes
    return {
        "number": number,
        "stage": graph.signature.stage.value,
        "operations": sum(node.op not in ("placeholder", "output") for node in nodes),
        "text": show(graph),
    }
