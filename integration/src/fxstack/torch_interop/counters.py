"""``torch._dynamo.utils.counters``, filled with the compilations of fxstack while fxstack is installed."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from fxstack.log import Captured, Listener
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import FrameRecord, Verdict


class TorchCounters(Listener):
    """A listener of all compilations. It counts nothing before the program has imported ``torch._dynamo``."""

    def on_frame(self, record: FrameRecord) -> None:
        _add("frames", "total")
        if record.verdict is not Verdict.COMPILED:
            return
        _add("frames", "ok")
        if record.graph is not None:
            calls = sum(node.op.startswith("call_") for node in record.graph.graph.nodes)
            _add("stats", "calls_captured", calls)
            _add("stats", "unique_graphs")

    def on_break(self, record: BreakRecord) -> None:
        _add("graph_break", record.message)

    def on_backend(self) -> None:
        _add("aot_autograd", "total")
        _add("aot_autograd", "ok")

    def on_stored(self, _captured: Captured, *, found: bool) -> None:
        name = "hit" if found else "miss"
        _add("aot_autograd", f"autograd_cache_{name}")
        _add("inductor", f"fxgraph_cache_{name}")


def _add(group: str, name: str, count: int = 1) -> None:
    utils = sys.modules.get("torch._dynamo.utils")
    counters: dict[str, Counter[Any]] | None = getattr(utils, "counters", None)
    if counters is not None:
        counters[group][name] += count
