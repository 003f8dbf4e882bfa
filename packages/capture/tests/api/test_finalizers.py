"""A ``__del__`` runs when the program drops its object, and what it does is seen by the next read."""

import itertools

import pytest
import torch

from fxstack_capture import disable, native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
LOG = []


class Noted:
    def __init__(self, value=None):
        self.value = value

    def __del__(self):
        LOG.append(self.value)


class Box:
    pass


def made(held):
    return Noted(1)


def made_elsewhere(held):
    return outside()


def given(held):
    return held.pop()


def listed(held):
    return [Noted(1)]


def attribute(held):
    box = Box()
    box.noted = Noted(1)
    return box


@disable
def outside():
    return Noted(1)


def deleted(value):
    before = len(LOG)
    del value
    return before


def rebound(value):
    before, value = len(LOG), 0
    return before + value


def cleared(value):
    values, before = [value], len(LOG)
    del value
    values.clear()
    return before


def from_a_cell(value):
    def inner():
        return value

    before = inner() is None
    value = None
    return before + len(LOG)


MAKERS = [made, made_elsewhere, given, listed, attribute]
DROPS = [deleted, rebound, cleared, from_a_cell]


@pytest.mark.parametrize(("make", "drop"), itertools.product(MAKERS, DROPS))
def test_effects_of_finalizers_are_seen(make, drop):
    def program(x, held):
        y = x * 2
        value = make(held)
        before = len(LOG)
        if drop is deleted:
            del value
        elif drop is rebound:
            value = None
        elif drop is cleared:
            value = [value]
            value.clear()
        else:
            before += drop(value)
        return y + before + 10 * len(LOG), list(LOG)

    same(program, lambda: [Noted(1)])


def replaced(x, held):
    held[0] = None
    return x + len(LOG)


def removed(x, held):
    held.remove(held[0])
    return x + len(LOG)


def emptied(x, held):
    held.clear()
    return x + len(LOG)


def nested(x, held):
    held[0] = [held]
    return x + len(LOG)


def attribute_set(x, box):
    box.noted = None
    return x + len(LOG)


def attribute_deleted(x, box):
    del box.noted
    return x + len(LOG)


@pytest.mark.parametrize("program", [replaced, removed, emptied, nested])
def test_objects_of_containers_from_outside(program):
    same(program, lambda: [Noted(1)])
    same(program, lambda: [[Noted(1)]])


@pytest.mark.parametrize("program", [attribute_set, attribute_deleted])
def test_objects_of_attributes_from_outside(program):
    same(program, lambda: attribute(None))


def test_a_temporary_and_a_local_of_a_callee():
    def callee():
        noted = Noted(1)
        return noted.value

    def program(x, _):
        Noted(2)
        return x + callee() + len(LOG)

    same(program, lambda: None)


def test_an_object_that_is_only_read_stays_in_the_graph():
    def program(x, noted):
        return x * noted.value

    noted, graphs = Noted(3), []
    compiled = optimize(lambda graph, _: graphs.append(graph) or graph.forward)(program)
    assert torch.equal(compiled(torch.ones(2), noted), torch.full((2,), 3.0))
    assert len(graphs) == 1


def same(program, make):
    found = []
    for run in (program, optimize()(program)):
        for _ in range(2):
            LOG.clear()
            given = make()
            found.append((run(torch.ones(2), given), len(LOG)))
            del given
    half = len(found) // 2
    for (one, dropped), (other, expected) in zip(found[half:], found[:half], strict=True):
        assert dropped == expected
        assert torch.equal(*(value[0] if type(value) is tuple else value for value in (one, other)))
        assert type(one) is not tuple or one[1] == other[1]
