"""Errors that a program makes and handles itself stay in the graph: none is taken for a failure of the compiler."""

import pytest
import torch
from beside import breaks_beside_plain

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
