"""One attempt to trace a frame: a new trace with all of its parts, run to its end or to a given step."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, TypeVar

from fxstack_capture.calls import native_run
from fxstack_capture.calls.dispatch import CallDispatcher
from fxstack_capture.driver.attempts.outcomes import UNWINDING, Ended, outcome_of
from fxstack_capture.driver.replacement import Written
from fxstack_capture.emit.endings.breaking import draft_stop
from fxstack_capture.emit.frame import Draft, draft_return
from fxstack_capture.emit.resume import Resumptions
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.guards.records import GuardSet
from fxstack_capture.interpreter.exceptions.errors import InterruptedTracing
from fxstack_capture.interpreter.machine import BytecodeInterpreter
from fxstack_capture.interpreter.program import ProgramTable
from fxstack_capture.objects.kinds.functions import proxy_cell
from fxstack_capture.objects.object_model import ObjectModel
from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.contract import Bound
from fxstack_capture.shapes.history import FrameHistory
from fxstack_capture.sources import FreeCell, Local
from fxstack_capture.torch_side.recording.assumptions import RefusedError
from fxstack_capture.torch_side.recording.tracer import TorchTracer
from fxstack_capture.torch_side.subclasses.suspended_modes import no_modes_left, set_aside
from fxstack_capture.trace.object_records import Parts
from fxstack_capture.trace.records import DeferredLocal, Raised, Returned, RootOutcome, Stopped
from fxstack_capture.trace.state import Trace

# Interpreting one call of the program takes several Python frames, but little of the C stack.
_EXTRA_RECURSION = 20_000

_Result = TypeVar("_Result")


def new_trace(
    options: CaptureOptions,
    programs: ProgramTable,
    history: FrameHistory | None,
    contract: Bound | None = None,
) -> Trace:
    """Return a new trace with its object model, dispatcher, tracer and interpreter. Each attempt has its own
    trace.

    ``history`` has the sizes of earlier calls. It decides which sizes become symbolic.
    """
    nothing: Any = None  # the parts are made later, because they need the trace
    trace = Trace(options, GuardSet(), nothing, nothing, nothing, nothing, contract=contract)
    trace.objects = ObjectModel(trace)
    trace.calls = CallDispatcher(trace)
    trace.torch = TorchTracer(trace, history)
    trace.interp = BytecodeInterpreter(trace, programs)
    return trace


def attempt(
    frame: RealFrame,
    trace: Trace,
    finish: Callable[[RootOutcome], _Result],
    stop_at: tuple[int, ...] | None = None,
) -> _Result | Ended:
    """Trace ``frame`` to its end. Return ``finish(end)``, or a record of why the trace stopped early.

    ``end`` says how the root frame ended. ``finish`` is called while the trace still exists. If ``stop_at``,
    a break path, is given, the trace stops there. Torch's global state is restored at the end.
    """
    arguments = {name: DeferredLocal(value, Local(name)) for name, value in frame.arguments.items()}
    try:
        root = _root_function(frame, trace)
        with _deep_recursion(), set_aside() as modes, no_modes_left():
            trace.torch.outer_modes = modes
            with trace.torch.session():
                end = trace.interp.run_root(root, root.__code__, arguments, stop_at)
                trace.objects.close()
                return finish(end)
    except InterruptedTracing:
        raise KeyboardInterrupt from None
    except UNWINDING as reason:
        return outcome_of(reason, trace)
    finally:
        arguments.clear()
        _release(trace)


def drafted(
    trace: Trace, frame: RealFrame, code: CodeType, resumptions: Resumptions, end: RootOutcome
) -> Written:
    """Write the draft of the replacement of a frame. ``attempt`` calls this function with the ``end`` of the
    trace.
    """
    draft: Draft | None = None
    raised: BaseException | None = None
    match end:
        case Returned(value):
            draft = draft_return(trace, frame, code, value)
        case Stopped():
            draft = draft_stop(trace, frame, code, end, resumptions)
        case Raised():
            raised = end.exception
            if trace.torch.assumptions.passed is not None:
                # only the assumed branch may raise this error, so the assumption is dropped
                raise RefusedError
    trace.objects.close()
    return Written(draft, tuple(trace.guards), raised=raised)


def _release(trace: Trace) -> None:
    """Release the program's objects now.

    The parts of a trace refer to each other. Without this function, the garbage collector would free them
    much later.
    """
    for part in (trace.objects, trace.calls, trace.torch, trace.interp):
        vars(part).clear()
    # Warnings of C code are attributed to the module ``native_run``. A program that inspects the warning
    # registries of all modules (assertWarns) would see its registry.
    vars(native_run).pop("__warningregistry__", None)
    trace.interp.tracing = False  # generators that outlive the trace read this flag


def _root_function(frame: RealFrame, trace: Trace) -> FunctionType:
    """Return a new function object for the root frame. The frame then is the source of the function's cells."""
    fn = frame.function
    root = FunctionType(fn.__code__, fn.__globals__, fn.__name__, None, fn.__closure__)
    objects = trace.objects
    assert isinstance(objects, ObjectModel)
    objects.root_globals = fn.__globals__
    cells = tuple(proxy_cell(objects, cell, FreeCell(name)) for name, cell in frame.cells.items())
    objects.parts[id(root)] = Parts(root, (), {}, cells)
    return root


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Raise the recursion limit, and disable garbage collection because a trace makes many short-lived
    objects.
    """
    limit, collecting = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(max(limit, _EXTRA_RECURSION))
    gc.disable()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
        if collecting:
            gc.enable()
