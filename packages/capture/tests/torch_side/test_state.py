"""Torch state that the program changes: in force while tracing, in the graph, undone at the end."""

from __future__ import annotations

import torch
from recorder import new_trace

import fxstack_capture
from fxstack_capture.guards.torch_state import snapshot
from fxstack_capture.sources import Local
from fxstack_capture.torch_side.recording.tracer import TorchTracer


def traced(program, real=None):
    real = torch.ones(2, 2, requires_grad=True) if real is None else real
    trace = new_trace()
    before = snapshot()
    with trace.torch.session():
        x = trace.torch.enter_tensor(real, Local("x"))
        out = program(lambda fn, *args: trace.torch.call(fn, args, {}), x)
        delta = trace.torch.state_delta()
    assert snapshot() == before
    code = trace.torch.finish([out])
    return code, delta, real, out


def names(code):
    return [n.target.__name__ for n in code.graph_module.graph.nodes if n.op == "call_function"]


def no_grad(call, x):
    call(torch._C._set_grad_enabled, False)
    y = call(torch.sin, x)
    call(torch._C._set_grad_enabled, True)
    return y


def test_no_grad():
    code, delta, real, out = traced(no_grad)
    assert not delta
    assert names(code) == ["_set_grad_enabled", "sin", "_set_grad_enabled"]
    (y,) = code.graph_module(real)
    assert not y.requires_grad and not out.requires_grad and torch.is_grad_enabled()


def idle(call, x):
    call(torch._C._set_grad_enabled, False)
    call(torch._C._set_grad_enabled, True)
    call(torch._C._set_grad_enabled, True)
    return call(torch.sin, x)


def test_idle_changes_are_dropped():
    assert names(traced(idle)[0]) == ["sin"]


def left_on(call, x):
    call(torch._C._set_grad_enabled, False)
    call(torch.autocast_increment_nesting)
    call(torch.set_autocast_enabled, "cpu", True)
    call(torch.set_autocast_dtype, "cpu", torch.float16)
    return call(torch.mm, x, x)


def test_delta_redoes_what_is_left():
    code, delta, real, out = traced(left_on)
    assert out.dtype is torch.float16
    before = snapshot()
    trace = new_trace()
    with trace.torch.session():
        for fn, args in delta:
            fn(*args)
        redone = trace.torch.state_delta()
        assert not torch.is_grad_enabled() and torch.is_autocast_enabled("cpu")
        torch.autocast_decrement_nesting()
    assert redone == [d for d in delta if d[0] is not torch.autocast_increment_nesting]
    assert (torch.autocast_increment_nesting, ()) in delta
    assert snapshot() == before


def queries(call, x):
    assert call(torch.is_grad_enabled) is True
    assert call(torch.get_default_dtype) is torch.float32
    assert call(torch._C._get_tracing_state) is None
    return call(torch.sin, x)


def test_queries_leave_no_trace():
    assert names(traced(queries)[0]) == ["sin"]


def test_no_tracer_is_needed_to_ask():
    assert TorchTracer(new_trace()).state_delta() == []


def test_seeds_are_set_in_the_graph_and_asked_for_outside():
    def fn(x):
        torch.manual_seed(3)
        return torch.rand(2) + x, torch.initial_seed()

    (found,) = fxstack_capture.explain(fn)(torch.ones(2)).breaks
    assert (found.reason.id, found.detail) == ("side-effect-call", "torch.initial_seed")
