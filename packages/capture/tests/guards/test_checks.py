# ruff: noqa: E501, SLOT000, PYI024, F632
"""Checks of one value: what each accepts and what it rejects."""

import collections
import gc
import types
import weakref

import pytest
import torch

from fxstack_capture.guards.records import (
    NOT_FOUND,
    CellEmpty,
    ClassUnchanged,
    Equals,
    HasKey,
    IdentityIs,
    KeysAre,
    LengthIs,
    MembersAre,
    RangeIs,
    SlotUnset,
    TypeIs,
    WordIs,
)
from fxstack_capture.sources import InstanceDict, Local, pinned


class Loud:
    """Anybody who compares or hashes it gets an error: guards must not."""

    def __init__(self, hash_value=None):
        self.hash_value = hash_value

    def __eq__(self, other):
        raise AssertionError("a guard ran __eq__")

    def __hash__(self):
        if self.hash_value is None:
            raise AssertionError("a guard ran __hash__")
        return self.hash_value


class Odd(str):
    def __eq__(self, other):
        raise AssertionError("a guard ran __eq__")

    __hash__ = str.__hash__


def test_type_is(g):
    assert g.holds(TypeIs(int), 1)
    assert not g.holds(TypeIs(int), True)
    assert g.holds(TypeIs(Loud), Loud())
    assert not g.holds(TypeIs(int), Loud())


@pytest.mark.parametrize("value", [0, -5, 2**62 - 1, 1 - 2**62])
def test_word_is(g, value):
    assert g.holds(WordIs(), value)


@pytest.mark.parametrize("value", [2**62, -(2**62), 2**70, True, 1.0, "1"])
def test_no_word(g, value):
    assert not g.holds(WordIs(), value)


@pytest.mark.parametrize("weak", [False, True])
def test_identity_is(g, weak):
    a, b = Loud(), Loud()
    assert g.holds(IdentityIs(a, id(a), weak), a)
    assert not g.holds(IdentityIs(a, id(a), weak), b)
    assert g.holds(IdentityIs(None, id(None), weak), None)
    assert not g.holds(IdentityIs(None, id(None), weak), 0)
    assert g.holds(IdentityIs((1,), 0, weak), t := (1,)) is (t is (1,))


NAN = float("nan")
CONSTANTS = [
    0, 1, -1, 2**70, True, False, None, ..., 0.0, -0.0, 1.0, NAN, 1j, complex(0, -0.0), "", "a", "ab", b"", b"a", (), (1,), (1.0,), (True,),
    (1, (2, "x")), frozenset(), frozenset({1}), frozenset({1.0}), frozenset({True}), frozenset({1, "a", (2,)}), slice(1, 2), slice(1.0, 2), slice(None),
    torch.Size((1,)), torch.float32, torch.float64, torch.device("cpu"), torch.device("meta"), torch.strided, NotImplemented,
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(CONSTANTS)))
def test_equals_tells_all_constants_apart(g, i):
    held = [j for j, value in enumerate(CONSTANTS) if g.holds(Equals(CONSTANTS[i]), value)]
    assert held == [i]


def copies():
    yield 10**9, int("1000000000")
    yield 2**70, int(str(2**70))
    yield 1.5, float("1.5")
    yield NAN, float("nan")
    yield 1 + 2j, complex("1+2j")
    yield "abc def", "".join(["abc", " def"])
    yield "\u00e9\u4e00", "".join(["\u00e9", "\u4e00"])
    yield b"abc", bytes([97, 98, 99])
    yield (1, "a", (2.0,)), tuple([1, "a", tuple([2.0])])
    yield frozenset(range(100)), frozenset(reversed(range(100)))
    yield slice(1, 10**9), slice(1, int("1000000000"))
    yield torch.Size((2, 3)), torch.Size((2, 3))
    yield torch.device("cuda", 0), torch.device("cuda:0")


@pytest.mark.parametrize(("value", "copy"), list(copies()))
def test_equals_accepts_equal_copies(g, value, copy):
    assert g.holds(Equals(value), copy)


@pytest.mark.parametrize("value", [Loud(), Odd("a"), [1], type("I", (int,), {})(1)])
def test_equals_runs_nobodys_code(g, value):
    assert not g.holds(Equals("a"), value)
    assert not g.holds(Equals(1), value)
    assert not g.holds(Equals((1, "a")), (1, value))
    assert g.holds(Equals((1, value)), (1, value))


CONTAINERS = [
    [1, 2, 3], (1, 2, 3), {1: 1, 2: 2, 3: 3}, {1, 2, 3}, frozenset({1, 2, 3}), collections.deque([1, 2, 3]), "abc", b"abc",
    collections.OrderedDict.fromkeys([1, 2, 3]), collections.Counter("abc"), collections.defaultdict(int, {1: 1, 2: 2, 3: 3}),
    collections.namedtuple("T", "a b c")(1, 2, 3), type("L", (list,), {"__len__": lambda self: 1 / 0})([1, 2, 3]),
]  # fmt: skip


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda c: type(c).__name__)
def test_length_is(g, container):
    assert g.holds(LengthIs(3), container)
    assert not g.holds(LengthIs(2), container)


def test_length_of_what_has_none(g):
    class Sized:
        def __len__(self):
            raise AssertionError("a guard ran __len__")

    assert not g.holds(LengthIs(3), Sized())
    assert not g.holds(LengthIs(3), 3)


def test_keys_are_in_order(g):
    check = KeysAre(("a", "b", 3))
    assert g.holds(check, {"a": 0, "b": 0, 3: 0})
    assert not g.holds(check, {"b": 0, "a": 0, 3: 0})
    assert not g.holds(check, {"a": 0, "b": 0})
    assert not g.holds(check, {"a": 0, "b": 0, 3: 0, "c": 0})
    assert not g.holds(check, {"a": 0, "b": 0, 3.0: 0})
    assert not g.holds(check, ["a", "b", 3])


def test_keys_are_in_any_order(g):
    check = KeysAre(("a", "b", 3), ordered=False)
    assert g.holds(check, {"b": 0, 3: 0, "a": 0})
    assert g.holds(check, {"b", 3, "a"})
    assert g.holds(check, frozenset({"b", 3, "a"}))
    assert not g.holds(check, {"b": 0, 3: 0, "c": 0})


def test_keys_that_are_objects(g):
    a, b = Loud(1), Loud(2)
    check = KeysAre((a, b))
    assert g.holds(check, {a: 0, b: 0})
    assert not g.holds(check, {b: 0, a: 0})
    assert not g.holds(check, {a: 0, Loud(3): 0})
    assert g.holds(KeysAre((b, a), ordered=False), {a: 0, b: 0})
    keys = list(set_of := {a, b})
    assert g.holds(KeysAre(tuple(keys)), set_of)


def test_keys_are_held_weakly(g):
    key = Loud(1)
    tree = g.tree((g.x, KeysAre((key,))))
    del key
    assert tree.dead


def test_keys_of_ordered_dicts_follow_their_own_order(g):
    d = collections.OrderedDict.fromkeys("abc")
    assert g.holds(KeysAre(("a", "b", "c")), d)
    d.move_to_end("a")
    assert not g.holds(KeysAre(("a", "b", "c")), d)
    assert g.holds(KeysAre(("b", "c", "a")), d)


def test_keys_after_deletions(g):
    d = dict.fromkeys("abcd")
    del d["b"]
    assert g.holds(KeysAre(("a", "c", "d")), d)
    d["b"] = 1
    assert not g.holds(KeysAre(("a", "b", "c", "d")), d)


@pytest.mark.parametrize("key", ["a", 1, (1, "x"), None, 2.5])
def test_has_key(g, key):
    for container in ({key: 0, "z": 1}, {key, "z"}, frozenset({key})):
        assert g.holds(HasKey(key, True), container)
        assert not g.holds(HasKey(key, False), container)
    for container in ({"z": 1}, {"z"}, frozenset(), {}):
        assert g.holds(HasKey(key, False), container)
        assert not g.holds(HasKey(key, True), container)


def test_has_key_compares_as_dicts_do(g):
    assert g.holds(HasKey(1, True), {True: 0})
    assert g.holds(HasKey(1.0, True), {1})
    assert g.holds(HasKey("a", False), {Odd("a"): 0})
    assert g.holds(HasKey(1, False), {Loud(1): 0})
    assert not g.holds(HasKey(1, False), [1])


def test_has_key_in_large_dicts(g):
    names = {f"k{i}": i for i in range(100)}
    assert g.holds(HasKey("k77", True), names)
    assert g.holds(HasKey("".join(["k", "77"]), True), names)
    assert g.holds(HasKey("k100", False), names)
    assert g.holds(HasKey(5, False), names)
    assert g.holds(HasKey(77, True), dict(enumerate("x" * 100)))


class Plain:
    shown = "class"

    def __init__(self, **attributes):
        for name, value in attributes.items():
            setattr(self, name, value)


def with_dict(o):
    o.__dict__  # noqa: B018 - makes the dictionary object
    return o


@pytest.mark.parametrize("prepare", [lambda o: o, with_dict], ids=["inline", "dictionary"])
def test_has_attribute(g, prepare):
    source = InstanceDict(Local("x"))
    o = prepare(Plain(a=1))
    assert g.holds(HasKey("a", True), o, source=source)
    assert g.holds(HasKey("shown", False), o, source=source)
    del o.a
    assert g.holds(HasKey("a", False), o, source=source)
    o.shown = 1
    assert g.holds(HasKey("shown", True), o, source=source)


@pytest.mark.parametrize("prepare", [lambda o: o, with_dict], ids=["inline", "dictionary"])
def test_members_are(g, prepare):
    source = InstanceDict(Local("x"))
    check = MembersAre(("a", "b"), ("hooks", "more"))
    o = prepare(Plain(hooks={}, more=collections.OrderedDict(), c=1))
    assert g.holds(check, o, source=source)
    o.more["k"] = 1
    assert not g.holds(check, o, source=source)
    o.more = ()
    assert not g.holds(check, o, source=source)
    o.more = {}
    o.b = None
    assert not g.holds(check, o, source=source)
    del o.b, o.hooks
    assert not g.holds(check, o, source=source)


def test_range_is(g):
    assert g.holds(RangeIs(0, 5, 1), range(5))
    assert not g.holds(RangeIs(0, 5, 1), range(0, 5, 2))
    assert not g.holds(RangeIs(0, 0, 1), range(1, 1))
    assert g.holds(RangeIs(0, 10**30, 1), range(10**30))
    assert not g.holds(RangeIs(0, 5, 1), [0, 1, 2, 3, 4])


def test_slot_unset(g):
    class Slotted:
        __slots__ = ("a", "b")

    o, check = Slotted(), SlotUnset(Slotted, "a")
    o.b = 1
    assert g.holds(check, o)
    o.a = None
    assert not g.holds(check, o)
    assert not g.holds(check, Plain())
    with pytest.raises(TypeError, match="is not a member of __slots__"):
        g.holds(SlotUnset(Plain, "__dict__"), Plain())


class TestClassUnchanged:
    def make(self):
        class Base:
            def m(self): ...

            value = 1

        class C(Base):
            def n(self): ...

        check = ClassUnchanged(("m", "n", "value", "none", "absent"), (Base.m, C.n, 1, None, NOT_FOUND))
        C.none = None
        return Base, C, check

    def test_holds_also_after_unrelated_changes(self, g):
        _base, C, check = self.make()
        tree = g.tree((pinned(C, "C"), check))
        for i in range(5):
            assert g.passes(tree, 0, 0)
            setattr(C, f"other{i}", i)

    @pytest.mark.parametrize(
        "change",
        [
            lambda B, C: setattr(B, "m", lambda self: 1),
            lambda B, C: setattr(C, "m", lambda self: 1),
            lambda B, C: delattr(C, "n"),
            lambda B, C: setattr(B, "value", 2),
            lambda B, C: setattr(B, "absent", None),
            lambda B, C: delattr(C, "none"),
            lambda B, C: setattr(C, "__bases__", (type("Other", (), {}),)),
        ],
    )
    def test_notices(self, g, change):
        B, C, check = self.make()
        tree = g.tree((pinned(C, "C"), check))
        assert g.passes(tree, 0, 0)
        change(B, C)
        assert not g.passes(tree, 0, 0)

    def test_a_change_back_is_accepted(self, g):
        B, C, check = self.make()
        tree = g.tree((pinned(C, "C"), check))
        B.value = 2
        assert not g.passes(tree, 0, 0)
        B.value = 1
        assert g.passes(tree, 0, 0)

    @pytest.mark.parametrize("asked", [True, False])
    def test_bases_are_noticed_where_they_were_asked_for(self, g, asked):
        P, Q = type("P", (), {}), type("Q", (), {})
        C = type("C", (type("B", (P,), {}),), {})
        tree = g.tree((pinned(C, "C"), ClassUnchanged((), (), C.__mro__ if asked else ())))
        assert g.passes(tree, 0, 0)
        C.__base__.__bases__ = (P, Q)
        assert g.passes(tree, 0, 0) is not asked
        C.__base__.__bases__ = (P,)
        assert g.passes(tree, 0, 0)

    def test_a_class_does_not_live_for_its_bases_sake(self, g):
        B = type("B", (), {})
        C = type("C", (B,), {})
        tree = g.tree((pinned(B, "B"), ClassUnchanged((), (), B.__mro__)))
        reference = weakref.ref(B)
        del B, C
        gc.collect()
        assert reference() is None
        assert not g.passes(tree, 0, 0)

    def test_of_something_else(self, g):
        assert not g.holds(ClassUnchanged(("m",), (1,)), types.SimpleNamespace(m=1))


def test_empty_cell(g):
    assert g.holds(CellEmpty(), types.CellType())
    assert not g.holds(CellEmpty(), types.CellType(None))
    assert not g.holds(CellEmpty(), None)
