"""A stand-in for the rest of capture: runs a function's torch calls against a ``TorchTracer`` directly.

``trace_calls(fn, *tensors)`` runs ``fn`` with the tracer's function mode on, so that every torch call in it
is recorded; ``check`` then runs the graph on the real inputs and compares with eager.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch.utils._pytree import tree_flatten

from fxstack_capture.guards.records import GuardSet
from fxstack_capture.options import CaptureOptions
from fxstack_capture.sources import BuiltinAttr, InstanceAttr, Local, Size, StorageOffset, Stride
from fxstack_capture.torch_side.recording.tracer import TorchTracer
from fxstack_capture.trace.state import Trace


class Stack:
    root_step = 0

    def user_stack(self):
        frame = sys._getframe(1)
        skip = ("fxstack_capture", "recorder", "site-packages/torch", "contextlib")
        while any(part in frame.f_code.co_filename for part in skip):
            frame = frame.f_back
        return ((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name),)

    def module_stack(self):
        return {}

    def receivers(self):
        return ()


class Objects:
    def __init__(self, trace):
        self.trace = trace
        self.entered = {}
        self.classes = SimpleNamespace(note=lambda _cls, _names: None)
        self.registry = SimpleNamespace(by_original={})

    def namespace(self, names):
        return names

    def enter(self, obj, source):
        if isinstance(obj, torch.Tensor):
            return self.trace.torch.enter_tensor(obj, source)
        self.entered[source] = obj
        return obj

    def is_preexisting(self, obj):
        return any(obj is entered for entered in self.entered.values())


def new_trace(history=None, **options):
    trace = Trace(CaptureOptions(**options), GuardSet(), None, None, None, Stack())
    trace.objects = Objects(trace)
    trace.torch = TorchTracer(trace, history)
    return trace


@dataclass
class Captured:
    trace: Trace
    code: object
    spec: object
    flat: list

    def run(self, *args):
        frame = {f"a{i}": value for i, value in enumerate(args)}
        inputs = [evaluate(source, frame) for source in self.code.inputs]
        found = iter(self.code.graph_module(*inputs))
        return self.spec.unflatten([next(found) if tensor else v for v, tensor in self.flat])

    @property
    def targets(self):
        return [
            str(getattr(n.target, "__name__", n.target))
            for n in self.code.graph_module.graph.nodes
            if n.op.startswith("call")
        ]

    def guards(self, kind):
        return [g for g in self.trace.guards if type(g.check).__name__ == kind]


def evaluate(source, frame):
    match source:
        case Local(name):
            return frame[name]
        case Size(of, dim):
            return evaluate(of, frame).size(dim)
        case Stride(of, dim):
            return evaluate(of, frame).stride(dim)
        case StorageOffset(of):
            return evaluate(of, frame).storage_offset()
        case BuiltinAttr(of, attr) | InstanceAttr(of, attr):
            return getattr(evaluate(of, frame), attr)
    raise NotImplementedError(source)


def enter(trace, value, source):
    if isinstance(value, torch.Tensor):
        return trace.torch.enter_tensor(value, source)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return trace.torch.enter_number(value, source)
    return value


def trace_calls(fn, *args, history=None, **options) -> Captured:
    trace = new_trace(history, **options)
    tracer = trace.torch
    fake_inputs = [enter(trace, a, Local(f"a{i}")) for i, a in enumerate(args)]
    with tracer.session(), tracer.function_mode():
        result = fn(*fake_inputs)
    flat, spec = tree_flatten(result)
    is_output = lambda v: isinstance(v, torch.Tensor) or tracer.is_symbolic(v)
    code = tracer.finish([v for v in flat if is_output(v)])
    return Captured(trace, code, spec, [(v, is_output(v)) for v in flat])


def check(fn, *args, calls=1, **options) -> Captured:
    """Trace ``fn``, run the graph, and compare results, mutation and gradients with eager."""
    captured = trace_calls(fn, *copy.deepcopy(args), **options)
    compare(captured, fn, *args)
    return captured


def compare(captured, fn, *args):
    theirs, ours = copy.deepcopy(args), copy.deepcopy(args)
    torch.manual_seed(0)
    expected = fn(*theirs)
    torch.manual_seed(0)
    found = captured.run(*ours)
    same(found, expected)
    same(ours, theirs)


def same(found, expected):
    a, spec_a = tree_flatten(found)
    b, spec_b = tree_flatten(expected)
    assert spec_a == spec_b, (spec_a, spec_b)
    for x, y in zip(a, b, strict=True):
        if not isinstance(y, torch.Tensor):
            assert type(x) is type(y) and x == y, (x, y)
            continue
        facts = lambda t: (
            t.shape,
            t.dtype,
            t.stride(),
            t.requires_grad,
            t.is_leaf,
            type(t),
            t.storage_offset(),
        )
        assert facts(x) == facts(y), (facts(x), facts(y))
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)
