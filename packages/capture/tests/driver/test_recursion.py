"""Functions that call themselves: to the limit of recursion, over breaks, and close below the limit."""

import sys

import pytest
import torch
from running import check

import fxstack_capture

X = torch.tensor([1.0, 2.0, 3.0])


def endless(x):
    return endless(x)


def to_the_limit(x):
    print("before")
    try:
        endless(x)
    except RecursionError:
        return x + 1


def after_every_call(x, n=12):
    if n == 0:
        return x
    x = after_every_call(x + 1, n - 1)
    print(n)
    return x


def before_every_call(x, n=12):
    if n == 0:
        return x
    print(n)
    return before_every_call(x + 1, n - 1)


class Shy(Exception):  # noqa: N818 - not an error of ours
    def __repr__(self):
        raise AssertionError("nobody in the program asks for this")

    __str__ = __repr__


def raised(x):
    raise Shy(x.sum(), 3)


def caught(x):
    try:
        print("before")
        raised(x)
    except Shy as error:
        return x + 1, error.args


@pytest.mark.parametrize("program", [to_the_limit, after_every_call, before_every_call, caught])
def test_recursion(program):
    check(program, X)


def test_a_deep_recursion_does_not_make_code_for_every_depth():
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    fxstack_capture.optimize(backend)(after_every_call)(X, 60)
    assert len(graphs) < 50


def test_an_exception_of_the_program_is_not_asked_for_its_text():
    with pytest.raises(Shy):
        fxstack_capture.optimize(lambda graph, _: graph.forward)(raised)(X)


def nearly_there(room, call):
    """``call()`` in a frame that has only ``room`` frames left."""
    depth = len(_frames())
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + room)
    try:
        return call()
    finally:
        sys.setrecursionlimit(limit)


def _frames():
    frame, found = sys._getframe(1), []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def test_frames_close_to_the_limit_are_compiled():
    seen = []

    def backend(graph, _):
        seen.append(graph)
        return graph.forward

    compiled = fxstack_capture.optimize(backend)(lambda x: x + 1)
    assert torch.equal(nearly_there(40, lambda: compiled(X)), X + 1)
    assert len(seen) == 1
