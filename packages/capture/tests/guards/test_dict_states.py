"""The number of a dictionary's state: the same while nothing changes, another one after every change, however it is made."""

import gc
import types

import pytest

from fxstack_capture import _native


class Thing:
    pass


def stored(thing, n):
    for i in range(n):
        thing.a = i


def of_thing():
    thing = Thing()
    thing.a, thing.b = 1, [2]
    stored(Thing(), 40)  # CPython has its fast ways by now
    return {"x": thing, "d": vars(thing)}


def of_module():
    module = types.ModuleType("some")
    module.a = 1
    return {"x": module, "d": vars(module)}


def plain():
    return {"d": {"a": 1, "b": [2]}}


def of_subclass_with_slots():
    cls = type("Slotted", (Thing,), {"__slots__": ("c",)})
    thing = cls()
    thing.a = 1
    return {"x": thing, "d": vars(thing)}


OBJECTS = {"thing": of_thing, "module": of_module, "slots": of_subclass_with_slots}
OF_OBJECTS = [
    "x.a = 2",
    "x.new = 1",
    "del x.a",
    "setattr(x, 'a', 3)",
    "object.__setattr__(x, 'a', 3)",
    "stored(x, 40)",
    "stored(x, 1)",
    "x.__dict__['a'] = 4",
    "x.__dict__.clear()",
    "exec('a = 7', x.__dict__)",
]
OF_DICTIONARIES = [
    "d['a'] = 2",
    "d['new'] = 1",
    "d[3] = 1",
    "del d['a']",
    "d.pop('a')",
    "d.popitem()",
    "d.clear()",
    "d.update(a=2)",
    "d.update({'new': 1})",
    "d.update([('new', 1)])",
    "d |= {'new': 1}",
    "d.setdefault('new', 1)",
    "d.__setitem__('a', 5)",
    "d.__init__(a=6)",
]


def check(names, change):
    state = _native.dict_state
    before = state(names["d"])
    assert before != 0
    assert state(names["d"]) == before
    exec(change, {"stored": stored}, names)
    after = state(names["d"])
    assert after != before
    assert after == state(names["d"]) or not names["d"]


@pytest.mark.parametrize("change", OF_OBJECTS + OF_DICTIONARIES)
@pytest.mark.parametrize("make", OBJECTS)
def test_changes_of_objects(make, change):
    check(OBJECTS[make](), change)


@pytest.mark.parametrize("change", OF_DICTIONARIES)
def test_changes_of_dictionaries(change):
    check(plain(), change)


def test_no_two_dictionaries_share_a_state():
    alive = [{}, {}, {"a": 1}, {"a": 1}, *(vars(OBJECTS[name]()["x"]) for name in OBJECTS)]
    assert len({_native.dict_state(d) for d in alive}) == len(alive)


def test_a_dead_dictionary_leaves_no_state_behind():
    seen = set()
    for _ in range(50):
        thing = Thing()
        thing.a = 1
        state = _native.dict_state(vars(thing))
        assert state not in seen
        seen.add(state)
        del thing
        gc.collect(0)


def test_asking_changes_nothing():
    thing = Thing()
    thing.a, thing.b, thing.c = 1, [2], None
    found, items = vars(thing), list(vars(thing).items())
    _native.dict_state(found)
    assert vars(thing) is found
    assert all(x is y for old, new in zip(items, found.items(), strict=True) for x, y in zip(old, new))
    thing.d = 4
    assert list(found) == ["a", "b", "c", "d"]
    assert found["d"] == 4


def test_a_dictionary_that_is_exchanged_has_its_own_state():
    one, other = Thing(), Thing()
    one.a, other.a = 1, 2
    state = _native.dict_state(vars(one))
    one.__dict__ = vars(other)
    assert _native.dict_state(vars(one)) == _native.dict_state(vars(other)) != state


@pytest.mark.parametrize("made", [type("Sub", (dict,), {})(a=1), [1], None])
def test_other_objects_have_no_state(made):
    assert _native.dict_state(made) == 0
