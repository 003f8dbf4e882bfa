"""``capture``: one whole graph of one call, without the frame hook."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.driver.attempt import attempt, new_trace, real_frame
from fxstack_capture.driver.errors import Unsupported
from fxstack_capture.driver.signature import signature_of
from fxstack_capture.emit.errors import CannotRebuildError
from fxstack_capture.emit.frame import draft_return
from fxstack_capture.shapes.history import FrameHistory
from fxstack_capture.trace import Raised, Returned
from fxstack_capture.versions import program_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.fx import GraphModule

    from fxstack_capture.emit.frame import Emitted
    from fxstack_capture.emit.resolve import RealFrame
    from fxstack_capture.guards.records import Guard
    from fxstack_capture.options import CaptureOptions
    from fxstack_capture.sources import Source
    from fxstack_interchange import StageGraph


@dataclass(frozen=True, slots=True)
class Captured:
    """One whole graph. Calling it runs the graph with the inputs found from the arguments, effects included.

    The guards are not checked by a call: it is for arguments like those that were captured.
    """

    stage_graph: StageGraph
    guards: tuple[Guard, ...]
    inputs: tuple[Source, ...]
    example_inputs: tuple[Any, ...]
    emitted: Emitted
    function: FunctionType
    leading: tuple[Any, ...]

    @property
    def graph_module(self) -> GraphModule:
        return self.stage_graph.graph_module

    @property
    def signature(self) -> Any:
        return self.stage_graph.signature

    @property
    def code(self) -> str:
        """What surrounds the graph, as Python-like text."""
        return self.emitted.text

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*self.leading, *args, **kwargs)


def capture_whole(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: CaptureOptions
) -> Captured:
    """Trace one call; raises ``Unsupported``, or what the program itself raises."""
    _, leading = _function_of(fn)
    frame = frame_of_call(fn, args, kwargs)
    function = frame.function
    trace = new_trace(options, program_table(), FrameHistory())
    trace.for_entry = False
    try:
        with attempt(frame, trace) as done:
            if isinstance(done.outcome, Raised):
                raise done.outcome.exception
            assert isinstance(done.outcome, Returned)
            draft = draft_return(trace, frame, function.__code__, done.outcome.value)
            trace.world.close()  # type: ignore[attr-defined]
            guards = tuple(trace.guards)
    except GraphBreak as reason:
        raise Unsupported(reason.record) from None
    except CannotRebuildError as reason:
        detail = f"the call returns or stores {reason.what}"
        raise Unsupported(graph_break("unsupported-object", detail).record) from None
    if draft.captured is None:
        detail = "the call does no torch operation"
        raise Unsupported(graph_break("tracing-error", detail).record)
    captured = draft.captured
    emitted = draft.complete(captured.graph_module)
    runner = FunctionType(
        emitted.code,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    runner.__kwdefaults__ = function.__kwdefaults__
    stage = signature_of(captured)
    return Captured(
        stage, guards, captured.inputs, captured.example_inputs, emitted, runner, leading
    )


def _function_of(fn: Any) -> tuple[FunctionType, tuple[Any, ...]]:
    """The Python function behind a callable, and the arguments that come first."""
    leading: tuple[Any, ...] = ()
    for _ in range(10):
        if isinstance(fn, FunctionType):
            return fn, leading
        if isinstance(fn, MethodType):
            fn, leading = fn.__func__, (fn.__self__, *leading)
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            fn = MethodType(type(fn).__call__, fn)
    raise TypeError(f"capture: expected a Python function or module, got {fn!r}")


def frame_of_call(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> RealFrame:
    """The frame that the call would start."""
    function, leading = _function_of(fn)
    bound = inspect.signature(function, follow_wrapped=False).bind(*leading, *args, **kwargs)
    bound.apply_defaults()
    cells = function.__closure__ or ()
    return real_frame(function, function.__code__, dict(bound.arguments), cells)
