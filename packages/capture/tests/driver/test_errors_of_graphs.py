"""After a graph raised, the program's handlers have run and torch's state is what eager leaves."""

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


def handled(x, i):
    try:
        with torch.no_grad():
            y = x.index_select(0, i) * 2
    except IndexError:
        y = x[0]
    return y + x[0]


def in_blocks_behind_a_break(x, i):
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        total = x.sum().item()
        y = x.index_select(0, i) * total
    return y + x[0]


def after_random_numbers(x, i):
    y = torch.rand(3)
    try:
        return x.index_select(0, i) + y
    except IndexError:
        return x * y


def seen(program, index):
    torch.manual_seed(0)
    torch.set_grad_enabled(True)
    try:
        result = program(torch.eye(3, requires_grad=True), index)
        what = result.tolist(), result.requires_grad
    except IndexError as error:
        what = str(error)
    torch.autocast_increment_nesting()
    return what, snapshot(), torch.autocast_decrement_nesting()


@pytest.mark.parametrize(
    "program",
    [
        *(in_no_grad, in_autocast, behind_a_check, in_autocast_behind_a_break),
        *(handled, in_blocks_behind_a_break, after_random_numbers),
    ],
)
def test_state_after_an_error(program):
    shape = () if program is in_autocast_behind_a_break else (1,)
    optimised = fx.optimize(Graphs())(program)
    for number in (0, 5, 0, 5):
        index = torch.full(shape, number)
        assert seen(optimised, index) == seen(program, index)


def test_a_wrong_result_is_no_error_of_the_program():
    def wrong(graph, _inputs):
        return lambda *args: tuple(result + 1 for result in graph(*args))

    def program(x):
        try:
            return x.sin()
        except RuntimeError:
            return x

    with (
        fx.patch_options(verify_correctness=True),
        pytest.raises(fx.WrongResultError, match="differ|disagree"),
    ):
        fx.optimize(wrong)(program)(torch.ones(2))


def test_a_user_s_context_is_left_where_a_graph_behind_a_break_raises():
    log = []

    class Context:
        def __enter__(self):
            log.append("in")

        def __exit__(self, *_):
            log.append("out")

    def program(x, i):
        with Context():
            total = x.sum().item()
            return x.index_select(0, i) * total

    optimised = fx.optimize(Graphs())(program)
    for number in (0, 5, 1, 5):
        index = torch.tensor([number])
        expected, plain = seen(program, index), log.copy()
        log.clear()
        assert (seen(optimised, index), log) == (expected, plain)
        log.clear()
