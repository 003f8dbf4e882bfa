"""A program reads what happened when an object died inside of a compiled function: every death with every maker."""

import itertools
import weakref

import pytest
import torch

from fxstack_capture import disable, native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
LOG = []
EVERYWHERE = weakref.WeakSet()


class Noted:
    def __init__(self, value=1):
        self.value = value

    def __del__(self):
        LOG.append(self.value)


class Box:
    pass


def made():
    return Noted()


@disable
def elsewhere():
    return Noted()


def behind_a_break():
    torch._dynamo.graph_break()
    return Noted()


def deleted(make):
    noted, before = make(), len(LOG)
    del noted
    return before


def rebound(make):
    noted, before = make(), len(LOG)
    noted = None
    return before


def temporary(make):
    return make().value


def used(make):
    noted = make()
    return noted.value + len(LOG)


def local_of_a_callee(make):
    return used(make)


def cleared(make):
    values, before = [make()], len(LOG)
    values.clear()
    return before


def popped(make):
    values = {1: make()}
    values.pop(1)
    return 0


def replaced_in_an_attribute(make):
    box = Box()
    box.noted, before = make(), len(LOG)
    box.noted = None
    return before


def held_by_an_object(make):
    box = Box()
    box.noted, before = make(), len(LOG)
    del box
    return before


def in_a_cell(make):
    noted = make()

    def inner():
        return noted

    before = inner() is None
    noted = None
    return before


def in_a_loop(make):
    total = 0
    for _ in range(3):
        noted = make()
        total += noted.value + 10 * len(LOG)
    return total


def behind_another_break(make):
    noted = make()
    torch._dynamo.graph_break()
    before = len(LOG)
    del noted
    return before


def in_a_list_over_a_break(make):
    values = [make()]
    torch._dynamo.graph_break()
    before = len(LOG)
    values.clear()
    return before


def of_an_exception(make):
    try:
        noted = make()
        raise ValueError(noted)
    except ValueError:
        before = len(LOG)
    del noted
    return before


MAKERS = [made, elsewhere, behind_a_break]
DEATHS = [
    *(deleted, rebound, temporary, local_of_a_callee, cleared, popped, replaced_in_an_attribute),
    *(held_by_an_object, in_a_cell, in_a_loop, behind_another_break, in_a_list_over_a_break, of_an_exception),
]


# Limits: an object that a function gets at a graph break may live until the function returns, so ``elsewhere`` has
# cases of its own.
CASES = [case for case in itertools.product(MAKERS, DEATHS) if case[0] is not elsewhere]


@pytest.mark.parametrize(("make", "die"), CASES)
def test_effects_of_finalizers_are_seen(make, die):
    same(lambda x: x + die(make) + 100 * len(LOG))


@pytest.mark.parametrize("make", MAKERS)
def test_a_local_lives_to_the_end(make):
    def program(x):
        noted = make()
        torch._dynamo.graph_break()
        before = len(LOG)
        torch._dynamo.graph_break()
        return x + before + 10 * len(LOG), noted is None

    same(lambda x: program(x)[0])


def called_back(x):
    box, before = Box(), len(LOG)
    reference = weakref.ref(box, lambda _: LOG.append(2))
    del box
    return x + before + 10 * len(LOG) + (reference() is None)


def called_back_by_a_proxy(x):
    box, before = Box(), len(LOG)
    proxy = weakref.proxy(box, lambda _: LOG.append(2))
    box = None
    return x + before + 10 * len(LOG) + (proxy is None)


class Reference(weakref.ref):
    pass


def called_back_by_a_subclass(x):
    box, before = Box(), len(LOG)
    reference = Reference(box, lambda _: LOG.append(2))
    del box
    return x + before + 10 * len(LOG) + (reference() is None)


def finalize(x):
    box, before = Box(), len(LOG)
    weakref.finalize(box, LOG.append, 3)
    del box
    return x + before + 10 * len(LOG)


def reference_to_a_tensor(x):
    y = x * 2
    reference = weakref.ref(y)
    before = reference() is None
    del y
    return x + before + 10 * (reference() is None)


def weak_values(x):
    values, y = weakref.WeakValueDictionary(), x * 2
    values[1] = y
    before = len(values)
    del y
    return x + before + 10 * len(values)


def tensor_keys(x):
    values, y = torch.utils.weak.WeakTensorKeyDictionary(), x * 2
    values[y] = 1
    before = len(values)
    del y
    return x + before + 10 * len(values)


def weak_set(x):
    values, box = weakref.WeakSet(), Box()
    values.add(box)
    before = len(values)
    del box
    return x + before + 10 * len(values)


def weak_set_of_outside(x):
    box = Box()
    EVERYWHERE.add(box)
    before = len(EVERYWHERE)
    del box
    return x + before + 10 * len(EVERYWHERE)


def left_generator(x):
    def numbers():
        try:
            yield 1
            yield 2
        finally:
            LOG.append(1)

    for _ in numbers():
        break
    return x + 10 * len(LOG)


OBSERVERS = [
    *(called_back, called_back_by_a_proxy, called_back_by_a_subclass, finalize, reference_to_a_tensor),
    *(weak_values, tensor_keys, weak_set, weak_set_of_outside, left_generator),
]


@pytest.mark.parametrize("program", OBSERVERS)
def test_deaths_are_seen(program):
    same(program)


@pytest.mark.parametrize("program", [weak_set, left_generator])
def test_weak_containers_and_generators_stay_in_one_graph(program):
    assert len(same(program)) == 1


def test_an_object_from_outside_stays_in_the_graph():
    noted = Noted(3)
    assert len(same(lambda x: x * noted.value)) == 1


def same(program):
    """Compare two calls with plain Python; return the graphs."""
    graphs = []
    compiled = optimize(lambda graph, _: graphs.append(graph) or graph.forward)(program)
    found = []
    for run in (program, program, compiled, compiled):
        LOG.clear()
        found.append((run(torch.ones(2)).tolist(), len(LOG)))
    assert found[:2] == found[2:]
    return graphs
