"""Fill torch's records of compilations (``CompilationMetrics``) from the events of fxstack."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from torch.fx import GraphModule

from fxstack.log import Captured, Compiled, Listener, StageTime
from fxstack.torch_compat import CompileContext
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import FrameRecord, Verdict

Metrics = dict[str, Any]
Seconds = defaultdict[str, float]


class _Open(threading.local):
    """The frames that this thread is compiling, and the seconds of compilations outside of a frame."""

    def __init__(self) -> None:
        self.frames: list[Metrics] = []
        self.seconds: Seconds = Seconds(float)


class FrameMetrics(Listener):
    """Base of ``TorchRecords`` and ``StructuredTrace``: passes torch's metrics of each compilation to ``receive``.

    ``receive`` also gets the seconds by stage. A backward that is compiled later than its frame has metrics
    of its own.
    """

    def __init__(self, receive: Callable[[Metrics, Seconds], None]) -> None:
        self._receive = receive
        self._open = _Open()
        self._frames = self._breaks = 0

    def on_start(self, code: CodeType) -> None:
        """Begin the metrics of a frame."""
        self._frames += 1
        metrics = {
            **_process_metrics(),
            "frame_key": str(self._frames),
            "co_name": code.co_qualname,
            "co_filename": code.co_filename,
            "co_firstlineno": code.co_firstlineno,
            "start_time_us": time.time_ns() // 1000,
            "is_forward": True,
            "has_guarded_code": False,
            "restart_reasons": set(),
            "seconds": Seconds(float),
        }
        self._open.frames.append(metrics)

    def on_break(self, record: BreakRecord) -> None:
        """Add the reason of a graph break to the metrics of the current frame."""
        self._breaks += 1
        if self._open.frames:
            self._open.frames[-1]["restart_reasons"].add(record.message)

    def on_frame(self, record: FrameRecord) -> None:
        """Add the guards, the recompilation and the graph of the current frame."""
        if not self._open.frames:
            return  # a frame that is not compiled
        metrics = self._open.frames[-1]
        metrics["has_guarded_code"] = record.verdict is not Verdict.PLAIN
        metrics["guard_count"] = len(record.guards)
        if record.verdict is Verdict.PLAIN:
            metrics["fail_reason"] = record.why
        recompilation = record.recompilation
        metrics["cache_size"] = metrics["accumulated_cache_size"] = (
            0 if recompilation is None else len(recompilation.failures)
        )
        if recompilation is not None:
            metrics["recompile_reason"] = recompilation.failures[0].message
        if record.graph is not None:
            metrics.update(_graph_metrics(record.graph))

    def on_time(self, _captured: Captured, time: StageTime) -> None:
        seconds = self._open.frames[-1]["seconds"] if self._open.frames else self._open.seconds
        seconds[time.stage] += time.seconds

    def on_compiled(
        self, _captured: Captured, role: str, _graph_module: GraphModule, _made: Compiled
    ) -> None:
        """Record the metrics of a backward that is compiled later than its frame."""
        if self._open.frames:
            return
        seconds, self._open.seconds = self._open.seconds, Seconds(float)
        spent = sum(seconds.values())
        start = time.time_ns() // 1000 - int(spent * 1e6)
        metrics = {**_process_metrics(), "is_forward": role != "backward", "start_time_us": start}
        seconds[role] = spent
        self._end(metrics, seconds)

    def on_end(self, error: BaseException | None) -> None:
        """End the metrics of the current frame, and hand them to torch."""
        metrics = self._open.frames.pop()
        if error is not None:
            metrics.update(fail_type=type(error).__qualname__, fail_reason=str(error))
        seconds = metrics.pop("seconds")
        seconds["frame"] = time.time_ns() / 1e9 - metrics["start_time_us"] / 1e6
        self._end(metrics, seconds)

    def _end(self, metrics: Metrics, seconds: Seconds) -> None:
        """Complete the metrics of a compilation that ends now, and pass them to the receiver."""
        end = time.time_ns() // 1000
        spent = {name: int(seconds[stage] * 1e6) for stage, name in _COLUMNS.items() if stage in seconds}
        metrics.update(
            spent, end_time_us=end, duration_us=end - metrics["start_time_us"], num_graph_breaks=self._breaks
        )
        if "frame" in seconds and "graph_op_count" in metrics:
            seconds["backend"] = seconds["frame"] - seconds["capture"]
            metrics["aot_autograd_cumulative_compile_time_us"] = int(seconds["backend"] * 1e6)
        self._receive(metrics, seconds)


_COLUMNS = {
    "frame": "dynamo_cumulative_compile_time_us",
    "inductor": "inductor_cumulative_compile_time_us",
    "backward": "backward_cumulative_compile_time_us",
}
"""Stage -> the field of torch's metrics that holds the stage's microseconds."""


def _process_metrics() -> Metrics:
    """Return the metrics that are equal for all frames of the process, and the current compile id."""
    return {
        "compile_id": CompileContext.current_compile_id(),
        "is_runtime": False,
        "cuda_version": torch.version.cuda,
        "python_version": sys.version,
        "pytorch_version": torch.__version__,
    }


def _graph_metrics(graph_module: GraphModule) -> Metrics:
    """Return the counts of a captured graph under the names of torch's metrics."""
    nodes = list(graph_module.graph.nodes)
    return {
        "graph_op_count": sum(node.op.startswith("call_") for node in nodes),
        "graph_node_count": len(nodes),
        "graph_input_count": sum(node.op == "placeholder" for node in nodes),
        "graph_node_shapes": str(sizes_of(graph_module)),
    }


def sizes_of(graph_module: GraphModule) -> dict[str, list[int | str]]:
    """Return the sizes of the tensors of a graph by node name, for example ``{"x": [3, "s0"]}``."""
    values = {
        node.name: node.meta.get("example_value", node.meta.get("val")) for node in graph_module.graph.nodes
    }
    return {
        name: [size if isinstance(size, int) else str(size) for size in value.shape]
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
    }
