"""The records of ``torch._dynamo.utils``, filled with the compilations of fxstack while fxstack is installed.

These are ``counters``, ``get_compilation_metrics``, ``compile_times`` and ``calculate_time_spent``.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict, deque
from types import ModuleType
from typing import Any, Final

from fxstack.log import Captured
from fxstack.torch_interop.metrics import FrameMetrics, Metrics, Seconds
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import FrameRecord, Verdict

UTILS: Final = "torch._dynamo.utils"

_TIMES: Final = {
    "frame": ("_compile.compile_inner", "entire_frame_compile"),
    "capture": ("bytecode_tracing", None),
    "backend": ("OutputGraph.call_user_compiler", "backend_compile"),
    "functionalize": ("create_aot_dispatcher_function", None),
    "partition": ("min_cut_rematerialization_partition", None),
    "inductor": ("compile_fx_inner", "inductor_compile"),
    "backward": ("backward._backward_impl", "entire_backward_compile"),
}
"""Stage -> the names of its time in ``compile_times`` and in ``calculate_time_spent`` (None: not listed)."""


class TorchRecords(FrameMetrics):
    """A listener of all compilations.

    It keeps its counts until the program imports ``torch._dynamo.utils``, which holds the records.
    """

    def __init__(self) -> None:
        super().__init__(self._record)
        self._counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._metrics: deque[tuple[Metrics, Seconds]] = deque(maxlen=64)

    def hand_over(self, utils: ModuleType) -> None:
        """Fill the records of ``torch._dynamo.utils`` when it is imported."""
        for group, counts in self._counters.items():
            utils.counters[group].update(counts)
        for metrics, seconds in self._metrics:
            _write(utils, metrics, seconds)
        self._counters.clear()
        self._metrics.clear()

    def on_frame(self, record: FrameRecord) -> None:
        """Count a frame, and the calls of its graph, in torch's counters."""
        super().on_frame(record)
        self._add("frames", "total")
        if record.verdict is not Verdict.COMPILED:
            return
        self._add("frames", "ok")
        if record.graph is not None:
            calls = sum(node.op.startswith("call_") for node in record.graph.graph.nodes)
            self._add("stats", "calls_captured", calls)
            self._add("stats", "unique_graphs")

    def on_break(self, record: BreakRecord) -> None:
        super().on_break(record)
        self._add("graph_break", record.message)

    def on_backend(self) -> None:
        self._add("aot_autograd", "total")
        self._add("aot_autograd", "ok")

    def on_stored(self, _captured: Captured, *, found: bool) -> None:
        """Count a look-up in the cache on disk as torch counts its own caches."""
        name = "hit" if found else "miss"
        self._add("aot_autograd", f"autograd_cache_{name}")
        self._add("inductor", f"fxgraph_cache_{name}")

    def _add(self, group: str, name: str, count: int = 1) -> None:
        counters: dict[str, Counter[str]] = getattr(_utils(), "counters", self._counters)
        counters[group][name] += count

    def _record(self, metrics: Metrics, seconds: Seconds) -> None:
        """Hand metrics to torch, or keep them until the program has imported ``torch._dynamo.utils``."""
        utils = _utils()
        if utils is None:
            self._metrics.append((metrics, seconds))
        else:
            _write(utils, metrics, seconds)


RECORDS: Final = TorchRecords()


def reset() -> None:
    """Delete the times and the callbacks of the program, as ``torch._dynamo.reset`` does."""
    utils, callbacks = _utils(), sys.modules.get("torch._dynamo.callback")
    if utils is not None:
        utils.reset_frame_count()
    if callbacks is not None:
        callbacks.callback_handler.clear()


def _utils() -> Any:
    """Return ``torch._dynamo.utils``, or None if the program has not imported it completely."""
    utils = sys.modules.get(UTILS)
    return utils if hasattr(utils, "get_compilation_metrics") else None


def _write(utils: Any, metrics: Metrics, seconds: Seconds) -> None:
    """Append the metrics and the seconds of a compilation to the records of ``torch._dynamo.utils``."""
    columns = utils.CompilationMetrics.__dataclass_fields__
    utils._compilation_metrics.append(
        utils.CompilationMetrics.create({name: value for name, value in metrics.items() if name in columns})
    )
    for stage, (function, phase) in _TIMES.items():
        if stage in seconds:
            utils.compilation_time_metrics.setdefault(function, []).append(seconds[stage])
        if stage in seconds and phase is not None:
            utils.cumulative_time_spent_ns[phase] += seconds[stage] * 1e9
