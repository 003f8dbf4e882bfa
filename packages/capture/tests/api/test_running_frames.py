"""Frames that a program asks for are its own, now and later: its variables, its lines, its callers."""

from __future__ import annotations

import collections
import inspect
import sys
import traceback

import pytest
import torch
from beside import breaks_beside_plain

from fxstack_capture import native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


def line_in(frame):
    return frame.f_lineno - frame.f_code.co_firstlineno


def frame_of(depth):
    return sys._getframe(depth)


def own_frame(x):
    first = 1
    frame = sys._getframe()
    y = x + first
    return y, sorted(frame.f_locals), line_in(frame), frame.f_code.co_name


def current_frame(x):
    frame = inspect.currentframe()
    y = x + 1
    return y, sorted(frame.f_locals), line_in(frame)


def frame_of_the_caller(x):
    y = x + 1
    frame = frame_of(1)
    later = 5
    return y, sorted(frame.f_locals), frame.f_locals["later"] == later, line_in(frame)


def frame_of_its_caller(x):
    def inner(x):
        y, frame = x * 2, frame_of(2)
        return y, frame.f_code.co_name, sorted(frame.f_locals)

    before = x + 1
    return inner(before), before


def frame_outside(x):
    return x + 1, sys._getframe(1).f_code.co_name, frame_of(2).f_code.co_name


def whole_stack(x):
    names = [entry.name for entry in traceback.extract_stack()]
    return x + 1, [entry.function for entry in inspect.stack()][:2], names[-2:]


def made_by_the_library(x):
    cls = collections.namedtuple("cls", "a b")  # noqa: PYI024
    return x + 1, tuple(cls(1, 2)), cls.__module__


PROGRAMS = [
    *(own_frame, current_frame, frame_of_the_caller, frame_of_its_caller, frame_outside),
    *(whole_stack, made_by_the_library),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_frames_are_those_of_plain_python(program):
    breaks_beside_plain(program, lambda: (torch.ones(2),))


def test_callers_and_callees_are_compiled():
    graphs = []

    def callee(x):
        return x * 3

    def asks(x):
        return callee(x), line_in(sys._getframe())

    def caller(x):
        y, line = asks(x + 1)
        return y + 2, line

    compiled = optimize(lambda graph, _: graphs.append(graph) or graph.forward)(caller)
    assert compiled(torch.ones(2))[1] == caller(torch.ones(2))[1]
    assert len(graphs) == 3
