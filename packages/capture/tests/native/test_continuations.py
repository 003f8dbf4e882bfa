"""A replacement goes on in another function, which takes its place."""

import sys
import traceback
import weakref

import pytest

from fxstack_capture import native


class Continue(tuple):  # noqa: SLOT001 - the class that capture uses has none either
    pass


@pytest.fixture(autouse=True)
def continuations():
    """This folder's tests run without the rest of the package, whose class is put back."""
    native.use_continuation(Continue)
    yield
    runtime = sys.modules.get("fxstack_capture.emit.runtime")
    if runtime is not None:
        native.use_continuation(runtime.Continue)


def f(n): ...


def f_new(n):
    return Continue((second, (n + 1,)))


def second(n):
    return ["second", n]


def test_goes_on_with_what_the_replacement_returns(replacer):
    assert replacer.replace(f, f_new)(f, 1) == ["second", 2]


DEPTHS = []


def step(n): ...


def step_new(n):
    DEPTHS.append(len(traceback.extract_stack()))
    return Continue((step, (n - 1,))) if n else "end"


def start(n): ...


def start_new(n):
    return Continue((step, (n,)))


def test_thousands_of_continuations_nest_once(replacer):
    DEPTHS.clear()
    replacer.replace(step, step_new).replace(start, start_new)
    assert replacer(start, 5000) == "end"
    assert len(DEPTHS) == 5001
    assert len(set(DEPTHS)) == 1


def failing(n):
    raise ValueError(n)


def failing_new(n):
    return Continue((failing, (n,)))


def test_the_continued_frame_alone_is_in_the_traceback(replacer):
    with pytest.raises(ValueError) as caught:
        replacer.replace(start, failing_new)(start, 1)
    names = [entry.name for entry in caught.traceback]
    assert names[-1] == "failing"
    assert "start" not in names
    assert "failing_new" not in names


class Thing:
    pass


def drops(thing):
    seen = weakref.ref(thing)
    del thing
    return seen() is None


def drops_old(thing): ...


def drops_start(n):
    return Continue((drops_old, (Thing(),)))


def test_the_continued_frame_owns_its_arguments(replacer):
    replacer.replace(drops_old, drops).replace(start, drops_start)
    replacer(start, 1)  # the helper remembers what it was asked with
    assert replacer(start, 1) is True


def calls_start(n):
    return [start(n), start(n)]


def test_a_call_inside_of_a_continued_frame_is_an_ordinary_call(replacer):
    replacer.replace(step, step_new).replace(start, start_new)
    assert replacer(calls_start, 3) == ["end", "end"]


def test_the_same_code_called_while_it_is_continued(replacer):
    replacer.replace(step, calls_itself).replace(start, start_new)
    assert replacer(start, 2) == [[0]]


def calls_itself(n):
    return [step(n - 1)] if n > 1 else Continue((zero, (n,)))


def zero(n):
    return [n - 1]


@pytest.mark.parametrize("wrong", [(), (1,), (1, ()), (zero, [1])])
def test_what_a_continuation_must_be(replacer, wrong):
    WRONG[0] = wrong
    with pytest.raises(TypeError, match="a continuation must be"):
        replacer.replace(start, wrong_new)(start, 1)


WRONG = [None]


def wrong_new(n):
    return Continue(WRONG[0])


def test_only_tuples_can_be_continuations():
    with pytest.raises(TypeError, match="subclass of tuple"):
        native.use_continuation(list)
