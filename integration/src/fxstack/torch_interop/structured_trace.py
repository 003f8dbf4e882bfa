"""The records of torch's structured trace (``TORCH_TRACE=folder``), which ``tlparse`` shows as HTML.

The kinds and keys are those of torch's compiler. A record costs nothing while nobody asks for the trace.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Iterator
from traceback import FrameSummary
from types import CodeType
from typing import Final

from torch.fx import GraphModule

from fxstack.log import Captured, Compiled, StageTime
from fxstack.torch_compat import CompileContext, structured, trace_log, trace_structured
from fxstack.torch_interop.metrics import FrameMetrics, Metrics, Seconds, sizes_of
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import FrameRecord
from fxstack_capture.guards.explain import guard_text
from fxstack_capture.guards.records import Guard
from fxstack_capture.trace.records import CapturedCode
from fxstack_interchange import Stage, StageGraph, show

_OWN: Final = ("contextlib", "fxstack", "fxstack_capture")
_KINDS: Final = {
    Stage.JOINT: "aot_joint_graph",
    Stage.FORWARD: "aot_forward_graph",
    Stage.BACKWARD: "aot_backward_graph",
}


def is_traced() -> bool:
    """Return whether torch's structured trace goes into a folder.

    Torch's handler has a ``root_dir``, which may be None. Handlers for logs have no ``root_dir``.
    """
    return any(getattr(handler, "root_dir", None) is not None for handler in trace_log.handlers)


class StructuredTrace(FrameMetrics):
    """Writes the events of compilations into the structured trace."""

    def __init__(self) -> None:
        super().__init__(_write_metrics)

    def wants_stages(self) -> bool:
        return is_traced()

    def on_start(self, code: CodeType) -> None:
        """Write the event ``dynamo_start`` with the program's stack."""
        super().on_start(code)
        if is_traced():
            stack = [*_frames(), FrameSummary(code.co_filename, code.co_firstlineno, code.co_name)]
            _write("dynamo_start", {"stack": structured.from_traceback(stack)})

    def on_captured(self, _captured: Captured, code: CapturedCode) -> None:
        """Write the captured graph as ``dynamo_output_graph``."""
        if is_traced():
            graph_module = code.graph_module
            _write("dynamo_output_graph", {"sizes": sizes_of(graph_module)}, lambda: readable(graph_module))

    def on_break(self, record: BreakRecord) -> None:
        super().on_break(record)
        _artifact("dynamo_graph_break_reason", lambda: record.message)

    def on_frame(self, record: FrameRecord) -> None:
        """Write the reasons of a recompilation, the guards and the bytecode of a frame."""
        super().on_frame(record)
        recompilation = record.recompilation
        if recompilation is not None:
            _artifact(
                "recompile_reasons", lambda: [failure.message for failure in recompilation.failures], "json"
            )
        if record.guards:
            _write(
                "dynamo_cpp_guards_str",
                {},
                lambda: "\n".join(guard_text(guard, record.names) for guard in record.guards),
            )
            _write("dynamo_guards", {}, lambda: list(map(_guard, record.guards)))
        if record.emitted is not None:
            _artifact(f"{record.name}_MODIFIED_BYTECODE", lambda: record.code)

    def on_stage_graph(self, _captured: Captured, graph: StageGraph) -> None:
        if (kind := _KINDS.get(graph.signature.stage)) is not None:
            _write(kind, {}, lambda: show(graph))

    def on_compiled(self, captured: Captured, role: str, graph_module: GraphModule, made: Compiled) -> None:
        """Write the graph and the code of a compiled graph as torch's inductor does."""
        super().on_compiled(captured, role, graph_module, made)
        if role == "inference":
            _write("aot_inference_graph", {}, lambda: readable(graph_module))
        _artifact("inductor_post_grad_graph", lambda: readable(graph_module))
        lowered = getattr(made, "lowered", None)
        if lowered is not None:
            file = f"fxstack_{role}_{CompileContext.current_compile_id()}.py".replace("/", "_")
            code = lambda: f'{lowered.host}\n\nKERNELS = r"""\n{lowered.kernels}\n"""\n'  # noqa: E731
            _write("inductor_output_code", {"filename": file, "file_path": file}, code)

    def on_time(self, captured: Captured, time: StageTime) -> None:
        super().on_time(captured, time)
        _event(time.stage, time.seconds)


def _write_metrics(metrics: Metrics, seconds: Seconds) -> None:
    """Write the metrics of a compilation, after events for the seconds of its frame and of its backward."""
    if not is_traced():
        return
    for stage in ("frame", "backward"):
        if stage in seconds:
            _event(stage, seconds[stage])
    kind = "compilation_metrics" if metrics["is_forward"] else "bwd_compilation_metrics"
    found = {name: sorted(value) if isinstance(value, set) else value for name, value in metrics.items()}
    _write(kind, found | {"compile_id": str(metrics["compile_id"])})


def _event(name: str, seconds: float) -> None:
    """Write an event of the timeline that ends now and took ``seconds``, in the trace format of Chromium."""
    event = {
        "name": name,
        "ph": "X",
        "ts": (time.time() - seconds) * 1e6,
        "dur": seconds * 1e6,
        "args": {"compile_id": str(CompileContext.current_compile_id())},
        "cat": "dynamo_timed",
        "tid": 0,
        "pid": 0,
    }
    _write("chromium_event", {}, lambda: event)


def _artifact(name: str, payload: Callable[[], object], encoding: str = "string") -> None:
    _write("artifact", {"name": name, "encoding": encoding}, payload)


def _write(kind: str, metadata: Metrics, payload: Callable[[], object] = lambda: None) -> None:
    if is_traced():
        trace_structured(kind, lambda: metadata, payload_fn=payload, expect_trace_id=False)


def _frames() -> Iterator[FrameSummary]:
    """Return the frames of the program on the stack, outermost first."""
    frame, found = sys._getframe(), []
    while (outer := frame.f_back) is not None:
        frame = outer
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _OWN:
            code = frame.f_code
            found.append(FrameSummary(code.co_filename, frame.f_lineno, code.co_name))
    return reversed(found)


def _guard(guard: Guard) -> dict[str, object]:
    stack = [FrameSummary(file, line, name) for file, line, name in guard.stack]
    return {"code": guard_text(guard), "stack": None, "user_stack": structured.from_traceback(stack)}


def readable(graph_module: GraphModule) -> str:
    """Return a captured graph as Python, with strides and devices."""
    if any(isinstance(node.meta.get("recompute"), str) for node in graph_module.graph.nodes):
        # torch prints the name of its own policy from this metadata, and fails on a tag of the interchange format.
        graph_module = GraphModule(
            graph_module, copy.deepcopy(graph_module.graph), type(graph_module).__name__
        )
        for node in graph_module.graph.nodes:
            node.meta.pop("recompute", None)
    return str(graph_module.print_readable(print_output=False, include_stride=True, include_device=True))
