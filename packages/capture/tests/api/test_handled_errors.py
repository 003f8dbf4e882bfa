"""Errors that a program makes and handles itself stay in the graph: none is taken for a failure of the compiler."""

import contextlib
import random

import pytest
import torch
from beside import breaks_beside_plain

import fxstack_capture

X = torch.arange(3.0)
METHODS = [(2.5).hex, (3.5).hex, (4.5).hex, (3).bit_length, (9).bit_length, (17).bit_length]


def caught(action, *args):
    try:
        action(*args)
    except Exception as error:  # noqa: BLE001
        return type(error), str(error)
    return None


def late_variable(x):
    def inner():
        return later

    def read_cell():
        return inner.__closure__[0].cell_contents

    early = caught(inner), caught(read_cell)
    later = x + 1
    return early, inner(), read_cell()


def deleted_variable(x):
    def outer():
        kept = x
        del kept
        print(kept)  # noqa: F821
        return lambda: kept  # noqa: F821

    return x + 1, caught(outer)


def no_such_position(x, items):
    def store():
        items[7] = x

    def remove():
        del items[7]

    return x + 1, caught(store), caught(remove), items


def own_list(x):
    return no_such_position(x, [1, x])


PROGRAMS = {
    "late": (late_variable, ()),
    "deleted": (deleted_variable, ()),
    "given list": (no_such_position, ([1, 2],)),
    "own list": (own_list, ()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_handled_errors_end_no_graph(name):
    program, args = PROGRAMS[name]
    assert breaks_beside_plain(program, lambda: (X.clone(), *args)) == []


def test_methods_of_numbers_from_outside_read_their_numbers():
    given = iter([method for method in METHODS for _ in range(2)])
    program = lambda x, method: (x + 1, method())  # noqa: E731
    assert breaks_beside_plain(program, lambda: (X.clone(), next(given)), calls=6) == []


GENERATOR = random.Random(3)


def drawn_before(x, at):
    number = random.random()
    try:
        x[at]
    except IndexError:
        return x * number, "caught"
    return x + number, "fine"


def drawn_around(x, at):
    first = GENERATOR.randint(0, 9)
    try:
        y = x[at] * GENERATOR.random()
    except IndexError as error:
        return x * GENERATOR.random(), first, str(error)
    return y, first, random.random()


@pytest.mark.parametrize("fn", [drawn_before, drawn_around])
def test_numbers_that_were_drawn_before_an_error(fn):
    """The frame runs again in plain Python, from the states that the generators had."""
    compiled, x = fxstack_capture.optimize()(fn), torch.ones(3)
    found = []
    for run in (fn, compiled):
        random.seed(5)
        GENERATOR.seed(7)
        results = [run(x, torch.tensor([at])) for at in (0, 7, 1, 8, 7)]
        found.append((results, random.getstate(), GENERATOR.getstate()))
    (ours, *states), (eager, *expected) = found[1], found[0]
    assert states == expected
    for one, other in zip(ours, eager, strict=True):
        assert torch.equal(one[0], other[0]) and one[1:] == other[1:]


def test_numbers_that_are_drawn_by_what_raises():
    """The call draws its mask and then finds that it cannot scale it: the generator is behind the draw in eager."""

    def fn(mask):
        with contextlib.suppress(RuntimeError):
            torch.nn.functional.dropout(mask, 0.5, True, inplace=True)
        return mask.float() * 2

    mask = torch.ones(4, dtype=torch.bool)
    found = []
    for run in (fn, fxstack_capture.optimize()(fn)):
        torch.manual_seed(3)
        found.append((run(mask), run(mask), torch.get_rng_state()))
    assert all(map(torch.equal, *found))
