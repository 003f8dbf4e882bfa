"""Hooks that the program gave to torch's ``register_bytecode_hook`` see and may replace the code of frames."""

import sys

import pytest
import torch
from torch._dynamo.convert_frame import register_bytecode_hook

import fxstack_capture as fx
from fxstack_capture.driver.errors import TracingWarning

X = torch.arange(3.0)


@pytest.fixture
def hooked():
    """Return a function that compiles and calls under a hook, and the code that the hook sees."""
    handles, seen = [], []

    def run(fn, *args, hook=lambda _old, _new: None):
        def seeing(old, new):
            seen.append((old, new))
            return hook(old, new)

        handles.append(register_bytecode_hook(seeing))
        return fx.optimize()(fn)(*args)

    run.seen = seen
    yield run
    for handle in handles:
        handle.remove()


def double(x):
    return x * 2


def test_a_hook_sees_the_old_and_the_new_code(hooked):
    assert hooked(double, X).tolist() == [0, 2, 4]
    ((old, new),) = hooked.seen
    assert old is double.__code__
    assert new is not old
    assert new.co_name == "double"


def test_a_hook_sees_resume_functions(hooked):
    def fn(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    assert hooked(fn, X).tolist() == [2, 4, 6]
    assert [new.co_name for _, new in hooked.seen] == ["fn", "fn"]


def test_tools_find_the_frame(hooked):
    def hook(old, _new):
        frame = sys._getframe()
        while not (
            frame.f_code.co_name == "_compile" and frame.f_code.co_filename.endswith("convert_frame.py")
        ):
            frame = frame.f_back
        found.append((frame.f_locals["frame"].f_code is old, frame.f_locals["frame"].f_globals is globals()))

    found = []
    hooked(double, X, hook=hook)
    assert found == [(True, True)]


def test_the_code_of_a_hook_runs(hooked):
    def hook(_old, new):
        return new.replace(co_consts=(*new.co_consts, "a constant of the hook"))

    compiled = hooked(lambda x: x + 5, X, hook=hook)
    assert compiled.tolist() == [5, 6, 7]


def test_code_without_the_variable_of_inputs_is_reported(hooked):
    def hook(old, _new):
        return old

    with pytest.warns(TracingWarning, match="the first variable after the arguments must be"):
        assert hooked(lambda pair: pair[0] + pair[1], [X, X], hook=hook).tolist() == [0, 2, 4]


def test_an_exception_of_a_hook_is_the_exception_of_the_call(hooked):
    def hook(_old, _new):
        raise KeyError("a hook")

    with pytest.raises(KeyError, match="a hook"):
        hooked(lambda x: x + 7, X, hook=hook)
