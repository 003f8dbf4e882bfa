"""Debuggers see the frames of plain Python: their lines, their variables, and the frames of inlined calls."""

import io
import pdb  # noqa: T100
import sys
import warnings

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture.driver.errors import TracingWarning
from fxstack_capture.driver.frame_policy import debugging

X = torch.ones(3)


def callee(x):
    z = x + 1
    return z * 2


def caller(x):
    y = x.sin()
    w = callee(y)
    return w.cos()


def stops(x):
    y = x.sin()
    number = 5
    breakpoint()  # noqa: T100
    return y.cos() + number


def set_trace():
    """A debugger of the program: it stops in the frame of its caller."""
    _pdb(sys._getframe(1))


def _pdb(frame):
    pdb.Pdb(stdin=sys.stdin, stdout=sys.stdout, nosigint=True, readrc=False).set_trace(frame)


def stops_in_pdb(x):
    y = x.sin()
    set_trace()
    z = y + 1
    return z.cos()


def calls_what_stops(x):
    made = stops(x * 2)
    return made + 1


def traces_itself(x):
    y = x.sin()
    sys.settrace(lambda *_: None)
    z = callee(y)
    sys.settrace(None)
    return z


def events(fn):
    """What a trace function sees of the frames in this file: event, function, line and variables."""
    seen = []

    def trace(frame, event, _):
        if frame.f_code.co_filename == __file__:
            seen.append((event, frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals)))
        return trace

    sys.settrace(trace)
    try:
        fn(X)
    finally:
        sys.settrace(None)
    return seen


def test_trace_functions_see_plain_python(monkeypatch):
    monkeypatch.setattr(debugging, "_reported", set())
    graphs = []
    compiled = fx.optimize(lambda module, _: graphs.append(module) or module.forward)(caller)
    with pytest.warns(TracingWarning, match="plain Python meanwhile") as caught:
        assert events(compiled) == events(caller)
        assert not graphs
        compiled(X)
        assert events(compiled) == events(caller)
    assert len(caught) == 1
    assert len(graphs) == 1


@pytest.mark.parametrize("module", ["coverage.pytracer", "hypothesis.internal.scrutineer"])
def test_coverage_tools_do_not_stop_compilation(module):
    graphs = []

    def trace(*_):
        return None

    trace.__module__ = module
    sys.settrace(trace)
    try:
        fx.optimize(lambda module, _: graphs.append(module) or module.forward)(caller)(X)
    finally:
        sys.settrace(None)
    assert len(graphs) == 1


def session(fn, commands, monkeypatch):
    """The text of a session with pdb."""
    text = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", io.StringIO(commands))
        patch.setattr(sys, "stdout", text)
        patch.setattr(sys, "breakpointhook", lambda: _pdb(sys._getframe(1)))
        try:
            fn(X)
        finally:
            sys.settrace(None)
    return text.getvalue()


@pytest.mark.parametrize("fn", [stops, stops_in_pdb, calls_what_stops])
def test_sessions_with_a_debugger_are_those_of_plain_python(fn, monkeypatch):
    commands = "p y\np sorted(locals())\nn\np sorted(locals())\nc\n"
    expected = session(fn, commands, monkeypatch)
    assert "'x', 'y'" in expected
    with pytest.warns(TracingWarning, match=r"\[debugger\] \w+ calls a debugger") as caught:
        assert session(fx.optimize()(fn), commands, monkeypatch) == expected
    functions = [str(w.message).split()[1] for w in caught if "[debugger]" in str(w.message)]
    assert len(functions) == len({*functions})


def test_hooks_of_breakpoint_see_the_frame(monkeypatch):
    seen = []
    hook = lambda: seen.append((sys._getframe(1).f_lineno, sorted(sys._getframe(1).f_locals)))  # noqa: E731
    monkeypatch.setattr(sys, "breakpointhook", hook)
    compiled = fx.optimize()(calls_what_stops)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = [compiled(X), compiled(X), calls_what_stops(X)]
    assert all(torch.allclose(result, results[0]) for result in results)
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][1] == ["number", "x", "y"]


def test_calls_of_debuggers_are_errors_under_fullgraph():
    with pytest.raises(fx.Unsupported, match="stops calls a debugger"):
        fx.optimize(fullgraph=True)(calls_what_stops)(X)


def test_functions_that_set_a_trace_function_run_as_they_are():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.allclose(fx.optimize()(traces_itself)(X), traces_itself(X))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_debugging_tools_of_sys_monitoring_run_plain_python():
    graphs, tools = [], sys.monitoring
    compiled = fx.optimize(lambda module, _: graphs.append(module) or module.forward)(caller)
    tools.use_tool_id(tools.DEBUGGER_ID, "test")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled(X)
    finally:
        tools.free_tool_id(tools.DEBUGGER_ID)
    assert not graphs
    compiled(X)
    assert len(graphs) == 1
