"""What a tree remembers of dictionaries never changes what it says: a tree that was asked before agrees with a new one."""

import random
import types
from collections import OrderedDict

import pytest
import torch

from fxstack_capture.guards.records import (
    Equals,
    Guard,
    HasKey,
    IdentityIs,
    KeysAre,
    LengthIs,
    MembersAre,
    TensorIs,
    TypeIs,
    tensor_facts,
)
from fxstack_capture.guards.tree import compile_guards
from fxstack_capture.sources import InstanceAttr, InstanceDict, Key, Local

X = Local("x")


class Thing:
    """An object whose dictionary exists as such, like a module's."""

    def __init__(self):
        self.__dict__["first"] = 1


class Other(Thing):
    pass


class Inline:
    """One that keeps its attributes without a dictionary."""


def subject(x, y=None):
    return x


def objects():
    top, below, inline = Thing(), Thing(), Inline()
    top.table = {"a": 1, "b": below, "n": None, "t": torch.ones(2), 3: "three"}
    top.hooks, top.module = OrderedDict(), types.ModuleType("some")
    top.below, top.inline, inline.value = below, inline, 4
    below.size, below.empty, below.inner = 2.5, {}, {"k": {"deep": "x"}}
    return top


TABLE, BELOW = InstanceAttr(X, "table"), InstanceAttr(X, "below")
INNER = Key(InstanceDict(BELOW), "inner")


def guards(top):
    """What a trace asks of such objects, in all the forms that have to do with dictionaries."""
    below = top.below
    asked = [
        (X, TypeIs(Thing)),
        (InstanceDict(X), HasKey("missing", present=False)),
        (InstanceDict(X), HasKey("first", present=True)),
        (InstanceDict(X), MembersAre(("forward", "extra"), ("hooks",))),
        (InstanceAttr(X, "module"), TypeIs(types.ModuleType)),
        (InstanceAttr(X, "module"), IdentityIs(top.module, id(top.module))),
        (TABLE, TypeIs(dict)),
        (TABLE, KeysAre(tuple(top.table))),
        (TABLE, LengthIs(len(top.table))),
        (Key(TABLE, "a"), Equals(1)),
        (Key(TABLE, "n"), IdentityIs(None, id(None))),
        (Key(TABLE, "n"), TypeIs(type(None))),
        (Key(TABLE, "b"), TypeIs(Thing)),
        (Key(TABLE, "b"), IdentityIs(below, id(below))),
        (Key(TABLE, 3), Equals("three")),
        (Key(TABLE, "t"), TensorIs(**facts(top.table["t"]))),
        (InstanceAttr(BELOW, "size"), Equals(2.5)),
        (InstanceDict(BELOW), MembersAre(("forward",), ("empty",))),
        (INNER, HasKey("z", present=False)),
        (Key(Key(INNER, "k"), "deep"), Equals("x")),
        (InstanceAttr(InstanceAttr(X, "inline"), "value"), Equals(4)),
        (InstanceDict(InstanceAttr(X, "inline")), HasKey("more", present=False)),
    ]
    return [Guard(source, check) for source, check in asked]


def facts(tensor):
    found = tensor_facts(tensor)
    return {name: getattr(found, name) for name in found.__slots__ if not name.startswith("_")}


CHANGES = [
    "x.table['a'] = 2",
    "x.table['a'] = 1",
    "x.table['a'] = True",
    "x.table['a'] = 2 ** 70 - 2 ** 70 + 1",
    "x.table['b'] = Thing()",
    "x.table['b'] = x.below",
    "x.table['b'].__class__ = Other",
    "x.table['b'].__class__ = Thing",
    "x.table['n'] = 0",
    "x.table['n'] = None",
    "x.table['new'] = 1",
    "x.table.pop('new', None)",
    "x.table['a'] = x.table.pop('a', 1)",
    "x.table = dict(x.table)",
    "x.table = {k: x.table[k] for k in ('a', 'b', 'n', 't', 3) if k in x.table}",
    "x.table.clear()",
    "x.table.update(a=1, b=x.below, n=None, t=torch.ones(2)); x.table[3] = 'three'",
    "x.table |= {'a': 5}",
    "x.table.setdefault('a', 1)",
    "x.table.popitem()",
    "x.table = OrderedDict(x.table)",
    "x.table['t'] = torch.ones(3)",
    "x.table['t'] = torch.ones(2)",
    "x.table.get('t', torch.ones(2)).requires_grad_(True)",
    "x.table.get('t', torch.ones(2)).requires_grad_(False)",
    "x.table['t'].data = torch.ones(2).double()",
    "x.missing = 1",
    "del x.missing",
    "x.__dict__['extra'] = 1",
    "x.__dict__.pop('extra', None)",
    "x.__dict__ = dict(x.__dict__)",
    "x.__dict__ = dict(x.__dict__, forward=3)",
    "x.__dict__.pop('forward', None)",
    "x.__class__ = Other",
    "x.__class__ = Thing",
    "x.hooks[1] = 2",
    "x.hooks.clear()",
    "x.hooks = {}",
    "x.hooks = None",
    "x.hooks = OrderedDict()",
    "x.module = types.ModuleType('other')",
    "x.module.__class__ = type('Sub', (types.ModuleType,), {})",
    "x.module.__class__ = types.ModuleType",
    "x.below = Thing()",
    "x.below = x.table['b']",
    "x.below.size = 3",
    "x.below.size = 2.5",
    "x.below.empty['k'] = 1",
    "x.below.empty.clear()",
    "x.below.inner['z'] = 1",
    "x.below.inner.pop('z', None)",
    "x.below.inner['k']['deep'] = 'y'",
    "x.below.inner['k']['deep'] = 'x'",
    "x.below.inner['k'] = {'deep': 'x'}",
    "x.inline.value = 5",
    "x.inline.value = 4",
    "x.inline.more = 5",
    "del x.inline.more",
    "x.inline.__dict__['value'] = 6",
    "x.inline = type(x.inline)(); x.inline.value = 4",
    "object.__setattr__(x, 'below', x.below)",
    "vars(x).update(first=1)",
    "pass",
]
NAMES = {"Thing": Thing, "Other": Other, "OrderedDict": OrderedDict, "torch": torch, "types": types}


@pytest.mark.parametrize("seed", range(8))
def test_random_changes(seed):
    rng = random.Random(seed)
    top = objects()
    asked = guards(top)
    code = subject.__code__
    old, held = compile_guards(asked, code), 0
    for _ in range(150):
        change = rng.choice(CHANGES)
        try:
            exec(change, NAMES | {"x": top})
        except Exception:  # an earlier change has taken it away
            continue
        for _ in range(2):
            expected = compile_guards(asked, code).failing(subject, (top, None)) == -1
            assert (old.failing(subject, (top, None)) == -1) == expected, change
        held += expected
        if rng.random() < 0.3:  # back to where everything holds
            top = objects()
            asked = guards(top)
            old = compile_guards(asked, code)
            assert old.failing(subject, (top, None)) == -1
    assert held > 10


def test_one_tree_for_two_objects():
    first, second = objects(), objects()
    asked = [g for g in guards(first) if not isinstance(g.check, IdentityIs)]
    tree = compile_guards(asked, subject.__code__)
    for x in (first, second, first, first, second, second):
        assert tree.failing(subject, (x, None)) == -1
    second.below.size = 3
    for x, holds in ((first, True), (second, False), (first, True), (second, False)):
        assert (tree.failing(subject, (x, None)) == -1) is holds


def test_an_entry_that_died_is_not_looked_at():
    top = objects()
    tree = compile_guards(guards(top), subject.__code__)
    for _ in range(3):
        assert tree.failing(subject, (top, None)) == -1
    for name in list(top.__dict__):
        delattr(top, name)
    for _ in range(3):
        assert tree.failing(subject, (top, None)) != -1
