"""Changes of an exception from outside of the compiled code, whose fields are in C."""

import pytest
import torch

import fxstack_capture as fx


def set_args(error):
    error.args = (1, 2)


def set_cause(error):
    error.__cause__ = KeyError(3)


class MadeWithBreak(Exception):
    def __init__(self, *, text):
        super().__init__(text)
        fx.graph_break()
        self.text = text


CHANGES = (
    set_args,
    set_cause,
    lambda e: Exception.__init__(e, 5),
    lambda e: e.__init__(7),
    lambda e: e.add_note("n"),
)


def fields(error):
    return (
        repr(error),
        repr(error.__cause__),
        error.__suppress_context__,
        vars(error),
        getattr(error, "value", 0),
    )


@pytest.mark.parametrize("kind", [ValueError, StopIteration, KeyError])
@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_seen_outside(change, kind):
    def program(x, error):
        y = x + 1
        change(error)
        return y, error.args

    plain, seen = kind("m"), kind("m")
    expected, found = (
        program(torch.ones(2), plain),
        fx.optimize(lambda graph, _: graph)(program)(torch.ones(2), seen),
    )
    assert found[1] == expected[1]
    assert fields(seen) == fields(plain)


def test_an_exception_that_is_half_made_at_a_break_keeps_its_arguments():
    made = fx.optimize(lambda graph, _: graph)(lambda x: (x + 1, MadeWithBreak(text="m")))(torch.ones(2))[1]
    assert fields(made) == fields(MadeWithBreak(text="m"))
