"""torch's state after a graph raised is what eager leaves: the program's ``with`` blocks have ended."""

import pytest
import torch
from running import Graphs

import fxstack_capture as fx
from fxstack_capture.guards.torch_state import snapshot


def in_no_grad(x, i):
    with torch.no_grad():
        y = x.index_select(0, i) * 2
    return y + x[0]


def in_autocast(x, i):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = (x @ x).index_select(0, i) * 2
    return y + x[0]


def behind_a_check(x, i):
    if (x < -100).any():
        raise ValueError("small")
    with torch.no_grad():
        y = x.index_select(0, i) * 2
    return y + x[0]


def in_autocast_behind_a_break(x, i):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = (x @ x)[i] * 2  # an index of no dimensions ends the graph
    return y + x[0]


def seen(program, index):
    torch.set_grad_enabled(True)
    try:
        result = program(torch.eye(3, requires_grad=True), index)
        what = result.tolist(), result.requires_grad
    except IndexError as error:
        what = str(error)
    torch.autocast_increment_nesting()
    return what, snapshot(), torch.autocast_decrement_nesting()


@pytest.mark.parametrize(
    "program", [in_no_grad, in_autocast, behind_a_check, in_autocast_behind_a_break]
)
def test_state_after_an_error(program):
    shape = () if program is in_autocast_behind_a_break else (1,)
    optimised = fx.optimize(Graphs())(program)
    for number in (0, 5, 0, 5):
        index = torch.full(shape, number)
        assert seen(optimised, index) == seen(program, index)
