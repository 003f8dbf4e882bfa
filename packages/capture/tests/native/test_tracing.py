# ruff: noqa: RET504
"""sys.settrace (of coverage tools), sys.setprofile and sys.monitoring see the replacement, and never the compiler."""

import sys

import pytest


def f(a):
    return a


def g(a):
    b = a + 1
    return b


def test_settrace(replacer):
    events = []

    def tracer(frame, event, arg):
        if frame.f_code in (f.__code__, g.__code__):
            events.append((frame.f_code.co_name, event, frame.f_lineno - g.__code__.co_firstlineno))
        if frame.f_code.co_name == "callback":
            events.append("compiler")
        return tracer

    tracer.__module__ = "coverage"
    replacer.replace(f, g)
    sys.settrace(tracer)
    try:
        results = [replacer(f, 1), replacer(f, 2)]
    finally:
        sys.settrace(None)
    assert results == [2, 3]
    assert events == [("g", "call", 0), ("g", "line", 1), ("g", "line", 2), ("g", "return", 2)] * 2
    assert replacer(f, 3) == 4


def test_setprofile(replacer):
    events = []
    replacer.replace(f, g)
    sys.setprofile(lambda frame, event, arg: events.append((frame.f_code.co_name, event)))
    try:
        replacer(f, 1)
    finally:
        sys.setprofile(None)
    assert ("g", "call") in events
    assert ("g", "return") in events
    assert not [event for event in events if event[0] in ("f", "callback")]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_monitoring(replacer):
    replacer.replace(f, g)
    started = []
    monitoring = sys.monitoring
    monitoring.use_tool_id(3, "test")
    try:
        monitoring.register_callback(
            3, monitoring.events.PY_START, lambda code, offset: started.append(code.co_name)
        )
        monitoring.set_events(3, monitoring.events.PY_START)
        replacer(f, 1)
    finally:
        monitoring.set_events(3, 0)
        monitoring.free_tool_id(3)
    assert "g" in started
    assert "f" not in started
