"""Turn the events of compilations into the text of artefacts."""

from __future__ import annotations

from torch.fx import GraphModule

from fxstack.debug.artefacts import needs_stage_graphs
from fxstack.debug.output import emit, show_pass
from fxstack.debug.passes import stops_after
from fxstack.log import Captured, Compiled, Listener
from fxstack.torch_interop.structured_trace import readable
from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.records import FrameRecord
from fxstack_capture.guards.explain import guard_text
from fxstack_capture.trace.records import CapturedCode
from fxstack_inductor.ir.printer import show_kernel
from fxstack_inductor.schedule.steps import KernelStep, show_plan
from fxstack_inductor.targets.c.artifact import Lowered
from fxstack_inductor.targets.triton.artifact import LoweredTriton
from fxstack_interchange import Stage, StageGraph, show
from fxstack_interchange.passes import PassDone, StoppedAfterPass


class DebugListener(Listener):
    """Shows the artefacts and passes that are asked for, in the order in which they are made."""

    def wants_stages(self) -> bool:
        return needs_stage_graphs()

    def on_pass(self, done: PassDone) -> None:
        """Show a pass. End the stage if ``FXSTACK_STOP_AFTER`` says so."""
        show_pass(done)
        if stops_after(done.stage, done.name):
            raise StoppedAfterPass(f"FXSTACK_STOP_AFTER ended the compilation after {done.stage}:{done.name}")

    def on_captured(self, captured: Captured, code: CapturedCode) -> None:
        emit("graph", captured.place, lambda: readable(code.graph_module))

    def on_frame(self, record: FrameRecord) -> None:
        """Emit the verdict on a frame, then its recompilation, guards and bytecode, if the frame has them."""
        place = record.place
        emit("frames", place, lambda: f"{record.verdict}{f': {record.why}' if record.why else ''}")
        if record.recompilation is not None:
            emit("recompiles", place, lambda: record.recompilation.message if record.recompilation else "")
        if record.guards:
            emit(
                "guards", place, lambda: "\n".join(guard_text(guard, record.names) for guard in record.guards)
            )
        if record.emitted is not None:
            emit("resume" if record.resumed else "bytecode", place, lambda: record.code)

    def on_break(self, record: BreakRecord) -> None:
        file, line, function = record.stack[-1] if record.stack else ("?", 0, "a function")
        emit("breaks", f"{function} ({file}:{line})", lambda: record.message)

    def on_stage_graph(self, captured: Captured, graph: StageGraph) -> None:
        """Emit a joint graph, or one graph of a partition."""
        place = captured.place
        stage = graph.signature.stage
        if stage is Stage.JOINT:
            emit("joint", place, lambda: show(graph))
        else:
            emit("partition", place, lambda: show(graph), stage.value)

    def on_compiled(self, captured: Captured, role: str, graph_module: GraphModule, made: Compiled) -> None:
        """Emit the loops, the schedule, the kernels and the host code of a compiled graph."""
        place = captured.place
        if role == "inference":
            emit("partition", place, lambda: readable(graph_module), role)
        lowered = getattr(made, "lowered", None)
        if not isinstance(lowered, Lowered | LoweredTriton):
            return  # ATen runs the graph; a warning has said why
        steps = [step.kernel for step in lowered.plan.steps if isinstance(step, KernelStep)]
        emit("loops", place, lambda: "\n\n".join(map(show_kernel, steps)) or "no kernel", role)
        emit("schedule", place, lambda: show_plan(lowered.plan), role)
        emit("kernels", place, lambda: lowered.kernels or "no kernel", role)
        file = emit("host", place, lambda: lowered.host, role)
        host = vars(made).get("host_function")
        if file is not None and host is not None:  # a debugger finds the lines in the file
            host.__code__ = host.__code__.replace(co_filename=str(file))
