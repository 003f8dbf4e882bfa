"""Ids, hashes and addresses are those of the program's objects, for every object that is passed."""

import copy
import gc
import weakref

import pytest
import torch

import fxstack_capture
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
X = torch.ones(2)


class Thing:
    pass


FIRST, SECOND = Thing(), Thing()
SHARED = [1]


def text(x, o):
    return x + 1, f"{o} {o!r}", [o].__repr__(), "%s" % (o,), str({1: o}), o.__repr__(), str(o)


def formatted(x, o):
    return x + 1, f"{o}", f"{[o]!r:>80}", ascii((o,)), o.__str__(), f"{o.__class__} {o}"


def method(x, o):
    return x + 1, repr(o.__init__)


def number(x, o):
    return x + 1, id(o), {"key": [id(o)]}, hash(o)


def made(x, o):
    new = Thing()
    return x + 1, new, id(new) - id(new), hash(new) == hash(new)


def kept(x, o):
    o.number = id(o), id(x)
    return x + 1, o.number


def of_tensors(x, o):
    y = x + 1
    return y, id(x), hash(x), id(y) == id(y), id(y) == id(x)


CALLS = [[(X, FIRST), (X, SECOND), (X, FIRST)]]


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("fn", [text, formatted, method, number, kept, of_tensors])
def test_what_leaves(fn, calls):
    compiled = fxstack_capture.optimize()(fn)
    for args in calls:
        assert str(compiled(*args)) == str(fn(*args))


def test_made_inside():
    def fn(x):
        new = Thing()
        new.own = id(new)
        return x + 1, new, id(new), hash(new)

    y, new, address, hashed = fxstack_capture.optimize()(fn)(X)
    assert (id(new), hash(new), new.own) == (address, hashed, address)


def copied(x, a, b):
    both = copy.deepcopy([a, b])
    both[0].append(5)
    return x + 1, both


def by_id(x, a, b):
    seen = {id(a)}
    return x + 1, id(b) in seen, id(a) == id(b)


def members(x, a, b):
    return x + 1, len({a, b}), len({a: 1, b: 2}), b in {a}, {a: 3}.get(b)


def by_hash(x, a, b):
    return x + 1, hash(a) == hash(b)


@pytest.mark.parametrize(
    ("fn", "apart", "together"),
    [
        (copied, ([1], [1]), (SHARED, SHARED)),
        (by_id, ([1], [1]), (SHARED, SHARED)),
        (by_id, (FIRST, SECOND), (FIRST, FIRST)),
        (members, (FIRST, SECOND), (FIRST, FIRST)),
        (by_hash, (FIRST, SECOND), (SECOND, SECOND)),
    ],
)
def test_one_object_twice_is_another_call(fn, apart, together):
    compiled = fxstack_capture.optimize()(fn)
    for args in (apart, together, apart):
        assert str(compiled(X, *args)) == str(fn(X, *args))


def test_tables_by_id_that_the_program_has_made_before():
    def fn(x, o, table):
        table[id(o)] = table.get(id(o), 0) + 1
        return x + 1

    compiled, known, other = fxstack_capture.optimize()(fn), FIRST, SECOND
    counts = {id(known): 5}
    for o in (known, known, other, known):
        compiled(X, o, counts)
    assert counts == {id(known): 8, id(other): 1}


def test_ids_of_dropped_objects_keep_nothing_alive():
    def fn(x):
        import weakref

        new = Thing()
        reference, _ = weakref.ref(new), id(new)
        del new
        return x + 1, reference() is None

    gc.collect()
    assert fxstack_capture.optimize()(fn)(X)[1]


def test_values_of_classes_and_functions():
    table = {Thing: [1], len: 2, "name": 3}

    def fn(x, o):
        return x * table[type(o)][0], table.get(len), table.get(dict), table["name"]

    compiled = fxstack_capture.optimize(fullgraph=True)(fn)
    assert str(compiled(X, FIRST)) == str(fn(X, FIRST))
    table[Thing] = [7]
    table[dict] = 5
    assert str(compiled(X, FIRST)) == str(fn(X, FIRST))


def test_weak_dictionaries_made_inside():
    def fn(x):
        key, value = Thing(), Thing()
        by_key, by_name = weakref.WeakKeyDictionary(), weakref.WeakValueDictionary()
        by_key[key], by_name["value"] = x + 1, value
        seen = by_key[key], len(by_key), by_name["value"] is value, list(by_key.values())
        del value
        return seen, len(by_name), by_name.get("value")

    compiled = fxstack_capture.optimize(fullgraph=True)(fn)
    assert str(compiled(X)) == str(fn(X))


def test_copies_of_objects():
    def fn(x):
        first = copy.deepcopy([FIRST, FIRST, x])
        return first[0] is first[1], first[0] is FIRST, first[2] + 1

    assert str(fxstack_capture.optimize()(fn)(X)) == str(fn(X))
