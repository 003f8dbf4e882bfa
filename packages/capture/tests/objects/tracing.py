"""Trace one call with the real parts (no native hook, no emission) and look at outcome, guards and
effects.
"""

from dataclasses import dataclass
from typing import Any

from fxstack_capture.calls.dispatch import CallDispatcher
from fxstack_capture.guards.records import GuardSet
from fxstack_capture.interpreter.machine import BytecodeInterpreter
from fxstack_capture.objects.object_model import ObjectModel
from fxstack_capture.options import CaptureOptions
from fxstack_capture.sources import Local
from fxstack_capture.torch_side.recording.tracer import TorchTracer
from fxstack_capture.trace.effect_diff import diff
from fxstack_capture.trace.records import DeferredLocal, Returned
from fxstack_capture.trace.state import Trace
from fxstack_capture.versions.instruction_sets import program_table

PROGRAMS = program_table()


@dataclass
class Run:
    trace: Any
    outcome: Any

    @property
    def value(self):
        if not isinstance(self.outcome, Returned):
            raise self.outcome.exception
        return self.outcome.value

    @property
    def effects(self):
        return diff(self.trace.objects).records

    @property
    def guards(self):
        self.trace.objects.close()
        return {(g.source.name, type(g.check).__name__): g.check for g in self.trace.guards}


def new_trace(**options):
    trace = Trace(CaptureOptions(**options), GuardSet(), None, None, None, None)
    trace.objects = ObjectModel(trace)
    trace.calls = CallDispatcher(trace)
    trace.torch = TorchTracer(trace)
    trace.interp = BytecodeInterpreter(trace, PROGRAMS)
    return trace


def trace_call(fn, *args, **options):
    """Trace ``fn(*args)``. ``fn`` takes positional parameters only."""
    trace = new_trace(**options)
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    local_values = {n: DeferredLocal(a, Local(n)) for n, a in zip(names, args, strict=True)}
    with trace.torch.session():
        outcome = trace.interp.run_root(fn, fn.__code__, local_values, None)
    return Run(trace, outcome)
