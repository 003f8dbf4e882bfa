"""Effect records are exact and minimal: what did not change is not written."""

import collections

import pytest
from tracing import trace_call

from fxstack_capture.trace.effects import (
    CellClear,
    CellSet,
    ClassDelete,
    ClassSet,
    DequeReplace,
    DictDelete,
    DictSet,
    ListReplace,
    SetChange,
    SlotDelete,
    SlotSet,
)


class Thing:
    kind = 1

    def __init__(self):
        self.a, self.b = 1, [1, 2]


class Slotted:
    __slots__ = ("v", "w")

    def __init__(self):
        self.v, self.w = 1, 2


class Deque(collections.deque):
    pass


LEVEL = 1


def effects(fn, *args):
    """Records without their sources: (class name, target's name, fields)."""
    found = []
    for record in trace_call(fn, *args).effects:
        fields = [getattr(record, f) for f in record.__dataclass_fields__ if f != "target"]
        found.append((type(record), record.target.name, *fields))
    return found


def test_nothing():
    def f(t, d, v):
        t.b[0], d["a"], len(v), sorted(v), list(d.items())

    assert effects(f, Thing(), {"a": 1}, [3, 1]) == []


def test_attributes():
    def f(t):
        t.a = 5
        t.c = 6
        del t.b

    assert effects(f, Thing()) == [
        (DictDelete, "t.__dict__", "b"),
        (DictSet, "t.__dict__", "a", 5),
        (DictSet, "t.__dict__", "c", 6),
    ]


def test_writing_the_same_object_is_no_effect():
    def f(t, v):
        t.a = t.a
        t.b = t.b
        v[0] = v[0]

    assert effects(f, Thing(), [1, "x"]) == []


def test_changing_back_is_no_effect():
    def f(d, v):
        old = d["a"]
        d["a"] = 7
        d["a"] = old
        v.append(1)
        v.pop()

    assert effects(f, {"a": "x"}, ["y"]) == []


def test_one_key_of_many():
    def f(d):
        d["k5"] = "new"

    assert effects(f, {f"k{i}": i for i in range(10)}) == [(DictSet, "d", "k5", "new")]


def test_key_order():
    def f(d):
        v = d.pop("a")
        d["a"] = v

    assert effects(f, {"a": 1, "b": 2}) == [(DictDelete, "d", "a"), (DictSet, "d", "a", 1)]


def test_clear_and_refill():
    def f(d):
        d.clear()
        d["b"] = 3

    assert effects(f, {"a": 1, "b": 2}) == [(DictDelete, "d", "a"), (DictSet, "d", "b", 3)]


def test_list_slice():
    def f(v):
        v.insert(2, "x")

    assert effects(f, [0, 1, 2, 3]) == [(ListReplace, "v", 2, 2, ("x",))]


def test_list_removal():
    def f(v):
        del v[1]

    assert effects(f, [0, 1, 2, 3]) == [(ListReplace, "v", 1, 2, ())]


def test_nested():
    def f(d):
        d["x"][0]["y"] = 1

    assert effects(f, {"x": [{}]}) == [(DictSet, "d['x'][0]", "y", 1)]


def test_set():
    def f(s):
        s.add(3)
        s.discard(1)

    assert effects(f, {1, 2}) == [(SetChange, "s", (1,), (3,))]


@pytest.mark.parametrize("cls", [collections.deque, Deque])
def test_deque(cls):
    def f(q):
        q.append(3)

    assert effects(f, cls([1, 2], 2)) == [(DequeReplace, "q", (2, 3))]


def test_ordered_dict():
    def f(d):
        d.move_to_end("a")

    assert effects(f, collections.OrderedDict(a=1, b=2)) == [(DictDelete, "d", "a"), (DictSet, "d", "a", 1)]


def test_slots():
    def f(s):
        s.v = 5
        del s.w

    assert effects(f, Slotted()) == [(SlotSet, "s", Slotted, "v", 5), (SlotDelete, "s", Slotted, "w")]


def test_globals():
    def f(v):
        global LEVEL
        LEVEL = v

    [(kind, target, key, value)] = effects(f, "new")
    assert (kind, key, value) == (DictSet, "LEVEL", "new")
    assert LEVEL == 1


def test_class_attributes():
    def f(t):
        Thing.kind = 2
        Thing.extra = 3
        del Thing.kind

    assert effects(f, 0) == [(ClassDelete, "Thing", "kind"), (ClassSet, "Thing", "extra", 3)]
    assert Thing.kind == 1 and not hasattr(Thing, "extra")


def test_cells():
    state, gone = 1, 2

    def put(v):
        nonlocal state, gone
        state = v
        del gone

    def f(v):
        put(v)

    found = {(kind, *rest[1:]) for kind, *rest in effects(f, "new")}
    assert found == {(CellSet, "new"), (CellClear,)}
    assert (state, gone) == (1, 2)
