# ruff: noqa: PYI024
"""Accesses: each finds what Python finds, in every representation of the object, and nothing else."""

import collections
import functools
import sys
import types

import pytest
import torch

from fxstack_capture import sources
from fxstack_capture.guards.records import Equals, IdentityIs, TypeIs
from fxstack_capture.sources import (
    BuiltinAttr,
    Cell,
    ClassAttr,
    Free,
    FreeCell,
    Globals,
    InstanceAttr,
    InstanceDict,
    Item,
    Key,
    KeyAt,
    Local,
    SlotAttr,
    TypeOf,
    ValueAt,
    pinned,
)

X = Local("x")


@pytest.fixture
def finds(g):
    """finds(source, x) -> whether the source leads to exactly ``expected``."""

    def finds(source, x, expected):
        return g.holds(IdentityIs(expected, id(expected)), x, source=source)

    return finds


@pytest.fixture
def misses(g):
    """misses(source, x): the access finds nothing (no type matches)."""

    def misses(source, x):
        tree = g.tree((source, Equals(...)))
        return not g.passes(tree, x, None)

    return misses


class Plain:
    on_class = object()

    @property
    def computed(self):
        raise AssertionError("a guard ran a property")

    def __getattr__(self, name):
        raise AssertionError("a guard ran __getattr__")


class Intercepting(Plain):
    def __getattribute__(self, name):
        raise AssertionError("a guard ran __getattribute__")


def inline(cls, **attributes):
    o = cls.__new__(cls)
    for name, value in attributes.items():
        object.__setattr__(o, name, value)
    return o


def materialised(cls, **attributes):
    o = inline(cls, **attributes)
    object.__getattribute__(o, "__dict__")
    return o


def many_first(cls, **attributes):
    """More attributes than fit inline."""
    return inline(cls, **{f"a{i}": i for i in range(40)}, **attributes)


def replaced_dict(cls, **attributes):
    o = inline(cls)
    object.__setattr__(o, "__dict__", dict(attributes))
    return o


@pytest.mark.parametrize("make", [inline, materialised, many_first, replaced_dict])
@pytest.mark.parametrize(
    "cls", [Plain, Intercepting, types.SimpleNamespace, type("L", (list,), {}), type("E", (Exception,), {})]
)
def test_instance_attributes(finds, misses, make, cls):
    if make is replaced_dict and cls is types.SimpleNamespace:
        pytest.skip("its __dict__ is read-only")
    value = object()
    o = make(cls, before=1, attr=value)
    assert finds(InstanceAttr(X, "attr"), o, value)
    assert finds(Key(InstanceDict(X), "attr"), o, value)
    assert misses(InstanceAttr(X, "absent"), o)
    assert misses(InstanceAttr(X, "on_class"), o)
    assert misses(InstanceAttr(X, "computed"), o)
    object.__delattr__(o, "attr")
    assert misses(InstanceAttr(X, "attr"), o)


def test_instance_attributes_of_functions_modules_and_classes(finds, misses):
    def f(): ...

    assert misses(InstanceAttr(X, "attr"), f)
    f.attr = value = object()
    assert finds(InstanceAttr(X, "attr"), f, value)
    assert finds(InstanceAttr(X, "path"), sys, sys.path)
    assert misses(InstanceAttr(X, "attr"), 5)
    assert misses(InstanceAttr(X, "attr"), [])


def test_reading_attributes_does_not_make_dictionaries(g, finds):
    o = inline(Plain, attr=(value := object()))
    size = sys.getsizeof(o)
    assert finds(InstanceAttr(X, "attr"), o, value)
    assert sys.getsizeof(o) == size


def test_a_hint_is_only_a_hint(g):
    tree = g.tree((InstanceAttr(X, "attr"), Equals(7)))
    for attributes in (
        {"attr": 7},
        {"b": 1, "attr": 7},
        {f"c{i}": i for i in range(20)} | {"attr": 7},
        {"attr": 7, "b": 0},
    ):
        for make in (inline, materialised, replaced_dict):
            assert g.passes(tree, make(Plain, **attributes), None)
            assert not g.passes(tree, make(Plain, **(attributes | {"attr": 8})), None)
    assert not g.passes(tree, inline(Plain, b=7), None)


def test_instance_dict(g, finds):
    o = inline(Plain, a=1)
    assert finds(InstanceDict(X), o, object.__getattribute__(o, "__dict__"))
    fresh = inline(type("L", (list,), {}))
    assert g.holds(TypeIs(dict), fresh, source=InstanceDict(X))
    assert not g.holds(TypeIs(dict), 5, source=InstanceDict(X))


class Slotted:
    __slots__ = ("a", "b")


def test_slots(finds, misses):
    o = Slotted()
    o.a = value = object()
    assert finds(SlotAttr(X, Slotted, "a"), o, value)
    assert misses(SlotAttr(X, Slotted, "b"), o)
    assert misses(SlotAttr(X, Slotted, "a"), Plain())
    assert misses(SlotAttr(X, Slotted, "a"), 5)


def test_c_level_attributes(finds, g):
    def f(a=1): ...

    code = f.__code__
    assert finds(SlotAttr(X, types.FunctionType, "__code__"), f, code)
    assert finds(SlotAttr(X, types.FunctionType, "__globals__"), f, globals())
    assert g.holds(Equals(3), functools.partial(f, 3), source=Item(SlotAttr(X, functools.partial, "args"), 0))
    assert finds(SlotAttr(X, types.MethodType, "__func__"), types.MethodType(f, 1), f)


def test_slot_of_something_else_is_refused(g):
    with pytest.raises(TypeError, match="neither a slot nor a C-level attribute"):
        g.tree((SlotAttr(X, Plain, "computed"), TypeIs(int)))


def test_builtin_attributes(finds, misses):
    t = torch.zeros(2, requires_grad=True)
    assert finds(BuiltinAttr(X, "grad"), t, None)
    t.grad = gradient = torch.ones(2)
    assert finds(BuiltinAttr(X, "grad"), t, gradient)
    assert misses(BuiltinAttr(X, "no_such"), t)


def test_builtin_attributes_of_functions(finds, misses):
    def f(a=1, *, k=2):
        return finds

    for name in ("__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__", "__name__"):
        assert finds(BuiltinAttr(X, name), f, getattr(f, name))
    assert finds(BuiltinAttr(X, "__defaults__"), lambda: 0, None)
    assert finds(BuiltinAttr(X, "__code__"), types.MethodType(f, 1), f.__code__)
    assert misses(BuiltinAttr(X, "__code__"), 5)


def test_class_attributes_are_raw(finds, misses):
    class Child(Plain): ...

    assert finds(ClassAttr(X, "computed"), Child, Plain.__dict__["computed"])
    assert finds(ClassAttr(TypeOf(X), "on_class"), Child(), Plain.on_class)
    assert misses(ClassAttr(X, "absent"), Child)
    assert misses(ClassAttr(X, "mro"), Child)
    assert misses(ClassAttr(X, "on_class"), Child())


def test_type_of(finds):
    assert finds(TypeOf(X), Intercepting(), Intercepting)
    assert finds(TypeOf(X), 1, int)


class Upside(list):
    def __getitem__(self, i):
        raise AssertionError("a guard ran __getitem__")


@pytest.mark.parametrize(
    "make", [list, tuple, collections.deque, Upside, collections.namedtuple("T", "a b c")._make]
)
def test_items(finds, misses, make):
    values = [object(), object(), object()]
    container = make(values)
    assert all(finds(Item(X, i), container, values[i]) for i in (0, 1, 2, -1, -3))
    assert misses(Item(X, 3), container)
    assert misses(Item(X, -4), container)


def test_items_of_what_has_none(misses):
    assert misses(Item(X, 0), {0: 1})
    assert misses(Item(X, 0), "abc")
    assert misses(Item(X, 0), 5)


class Sly(dict):
    def __getitem__(self, key):
        raise AssertionError("a guard ran __getitem__")

    def __missing__(self, key):
        raise AssertionError("a guard ran __missing__")


@pytest.mark.parametrize(
    "make", [dict, Sly, collections.OrderedDict, lambda d: collections.defaultdict(list, d)]
)
@pytest.mark.parametrize("key", ["a", 1, (1, 2), None, 2.5, "\u4e00"])
def test_keys(finds, misses, make, key):
    value = object()
    assert finds(Key(X, key), make({"first": 0, key: value}), value)
    assert finds(Key(X, key), make({**{i * 7 + 3: i for i in range(50)}, key: value}), value)
    assert misses(Key(X, key), make({"first": 0}))
    assert misses(Key(X, key), [value])


def test_key_hint_over_changing_dicts(g):
    tree = g.tree((Key(X, "k"), Equals(7)))
    d = {}
    for i in range(200):
        d[f"x{i}"] = i
        assert not g.passes(tree, d, None)
    d["k"] = 7
    assert g.passes(tree, d, None)
    for i in range(0, 200, 2):
        del d[f"x{i}"]
        assert g.passes(tree, d, None)
    d["k"] = 8
    assert not g.passes(tree, d, None)
    del d["k"]
    assert not g.passes(tree, d, None)
    d["k"] = 7
    assert g.passes(tree, d, None)
    d.clear()
    assert not g.passes(tree, d, None)


def test_key_must_be_constant(g):
    with pytest.raises(TypeError, match="is not a constant"):
        g.tree((Key(X, object()), TypeIs(int)))


class Held:
    def __init__(self, first, second):
        self.first, self.second = first, second


def test_positions_of_keys_and_values(finds, misses):
    a, b = object(), object()
    for d in ({"z": 0, a: b}, collections.OrderedDict({"z": 0, a: b})):
        assert finds(KeyAt(X, 1), d, a)
        assert finds(ValueAt(X, 1), d, b)
        assert misses(KeyAt(X, 2), d)
        assert misses(ValueAt(X, 2), d)
    holed = {number: str(number) for number in range(6)}
    del holed[0], holed[3]
    for index, key in enumerate(holed):
        assert finds(KeyAt(X, index), holed, key)
        assert finds(ValueAt(X, index), holed, holed[key])
    assert misses(KeyAt(X, 4), holed)
    for index, (name, value) in enumerate(vars(Held(1, 2)).items()):
        assert finds(KeyAt(X, index), vars(Held(1, 2)), name)
        assert finds(ValueAt(X, index), vars(Held(1, 2)), value)
    d.move_to_end("z")
    assert finds(KeyAt(X, 0), d, a)
    s = {a, b}
    assert finds(KeyAt(X, 0), s, list(s)[0])
    assert finds(KeyAt(X, 1), frozenset(s), list(frozenset(s))[1])
    assert misses(ValueAt(X, 0), s)
    assert misses(KeyAt(X, 0), [a])


def test_position_after_deletion(finds):
    d = dict.fromkeys("abcd", 0)
    d["c"] = value = object()
    del d["a"]
    assert finds(ValueAt(X, 1), d, value)


def test_roots(g):
    content, late = object(), None

    def f(x, *rest, k, **more):
        return content, late

    def ask(source, expected, fn=f):
        tree = g.tree((source, IdentityIs(expected, id(expected))), fn=fn)
        return g.passes(tree, 1, k, rest, more, fn=fn)

    k, rest, more = object(), (object(),), {"m": object()}
    assert ask(Local("k"), k)
    assert ask(Local("rest"), rest)
    assert ask(Key(Local("more"), "m"), more["m"])
    assert ask(Free("content"), content)
    assert ask(FreeCell("content"), f.__closure__[0])
    assert ask(Cell(FreeCell("content")), content)
    assert ask(Globals(), globals())
    assert ask(Key(Globals(), "Plain"), Plain)
    assert ask(pinned(k, "k"), k)
    assert not ask(pinned(object(), "other"), k)


def test_empty_cells(g):
    def make():
        def f(x, y=None):
            return later

        if False:
            later = 1
        return f

    f = make()
    tree = g.tree((Free("later"), TypeIs(int)), fn=f)
    assert not g.passes(tree, 1, None, fn=f)


def test_closures_are_those_of_the_call(g):
    def make(value):
        def f(x, y=None):
            return value

        return f

    tree = g.tree((Free("value"), Equals(1)), fn=make(1))
    assert g.passes(tree, 0, None, fn=make(1))
    assert not g.passes(tree, 0, None, fn=make(2))


def test_unknown_roots_and_steps_are_refused(g):
    class Strange(sources.Step):
        pass

    with pytest.raises(ValueError, match="TypeIs on z: 'z' is no argument of this function"):
        g.tree((Local("z"), TypeIs(int)))
    with pytest.raises(ValueError, match="'z' is no free variable"):
        g.tree((Free("z"), TypeIs(int)))
    with pytest.raises((ValueError, NotImplementedError)):
        g.tree((Strange(X), TypeIs(int)))


def test_shared_prefixes_are_one_path(g):
    tree = g.tree(*((Item(Key(X, "a"), i), Equals(i)) for i in range(5)))
    assert g.passes(tree, {"a": [0, 1, 2, 3, 4]}, None)
    assert tree.failing(sys._getframe and test_subject, ({"a": [0, 1, 9, 3, 4]}, None)) == 2


def test_subject(x=None, y=None):
    """Only its shape matters."""
