"""After a call was compiled, one thing anywhere in its reach changes: the next call must see it."""

import collections
import copy
import types

import pytest
import torch

import fxstack_capture
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the native extension")

FLAG = 1
TABLE = {"k": 2, "other": 1}
MODULE = types.ModuleType("some_user_module")
MODULE.level = 3


def helper(v):
    return v + FLAG


def other_helper(v):
    return v - 5


class Desc:
    def __get__(self, obj, cls):
        return 7


class Thing:
    scale = 2
    limits = [1, 2]

    def __init__(self):
        self.n = 3
        self.items = [1, 2]
        self.opts = {"a": 1, "b": {"c": 4}}
        self.child = Leaf()
        self.fn = helper
        self.names = {"x", "y"}
        self.queue = collections.deque([1, 2])
        self.pair = (1, [2])
        self.od = collections.OrderedDict(a=1, b=2)

    def method(self):
        return self.n * self.scale

    @property
    def prop(self):
        return self.n + 1

    def __len__(self):
        return 4


class Leaf:
    __slots__ = ("v",)

    def __init__(self):
        self.v = 5


def make_closure():
    state = 1

    def get():
        return state

    def put(v):
        nonlocal state
        state = v

    return get, put


GET, PUT = make_closure()


def with_default(v, k=3):
    return v * k


def everything(x, t):
    total = t.n + t.method() + t.prop + len(t) + t.limits[1] + t.scale
    total += sum(t.items) + t.opts["a"] + t.opts["b"]["c"] + t.child.v
    total += t.fn(1) + helper(2) + FLAG + TABLE["k"] + MODULE.level + GET()
    total += len(t.names) + t.queue[0] + t.pair[1][0] + with_default(1)
    total += 10 if hasattr(t, "extra") else 0
    total += 100 if "new" in t.opts else 0
    total += 1000 * [k for k in t.od].index("a")
    total += t.od["a"]
    return x * total


def set_global(name, value):
    def change(t):
        globals()[name] = value

    return change


CHANGES = {
    "attribute": lambda t: setattr(t, "n", 30),
    "attribute type": lambda t: setattr(t, "n", 3.5),
    "new attribute": lambda t: setattr(t, "extra", 1),
    "instance shadows class": lambda t: setattr(t, "scale", 20),
    "instance shadows method": lambda t: setattr(t, "method", lambda: 50),
    "class attribute": lambda t: setattr(Thing, "scale", 200),
    "class method": lambda t: setattr(Thing, "method", lambda self: 11),
    "class property": lambda t: setattr(Thing, "prop", Desc()),
    "special method": lambda t: setattr(Thing, "__len__", lambda self: 77),
    "class list": lambda t: Thing.limits.__setitem__(1, 99),
    "list item": lambda t: t.items.__setitem__(0, 44),
    "list length": lambda t: t.items.append(5),
    "dict value": lambda t: t.opts.__setitem__("a", 9),
    "dict key": lambda t: t.opts.__setitem__("new", 9),
    "nested dict": lambda t: t.opts["b"].__setitem__("c", 9),
    "slot": lambda t: setattr(t.child, "v", 9),
    "function attribute": lambda t: setattr(t, "fn", other_helper),
    "global function": set_global("helper", other_helper),
    "global number": set_global("FLAG", 12),
    "global dict": lambda t: TABLE.__setitem__("k", 40),
    "module attribute": lambda t: setattr(MODULE, "level", 31),
    "closure": lambda t: PUT(13),
    "code": lambda t: setattr(helper, "__code__", other_helper.__code__),
    "defaults": lambda t: setattr(with_default, "__defaults__", (8,)),
    "set": lambda t: t.names.add("z"),
    "deque": lambda t: t.queue.appendleft(9),
    "tuple": lambda t: setattr(t, "pair", (1, [9])),
    "inside tuple": lambda t: t.pair[1].__setitem__(0, 9),
    "order": lambda t: t.od.move_to_end("a"),
    "class of the object": lambda t: setattr(t, "__class__", type("Thing2", (Thing,), {"scale": 9})),
    "getattribute": lambda t: setattr(
        Thing, "__getattribute__", lambda s, n: 6 if n == "n" else object.__getattribute__(s, n)
    ),
}


@pytest.fixture
def restored():
    saved = dict(vars(Thing))
    namespace = dict(globals())
    table, level, limits = dict(TABLE), MODULE.level, list(Thing.limits)
    code, defaults, state = helper.__code__, with_default.__defaults__, GET()
    yield
    for name in list(vars(Thing)):
        if name not in saved:
            delattr(Thing, name)
    for name, value in saved.items():
        if vars(Thing).get(name) is not value:
            setattr(Thing, name, value)
    globals().update({k: namespace[k] for k in ("FLAG", "helper")})
    TABLE.clear()
    TABLE.update(table)
    MODULE.level = level
    Thing.limits[:] = limits
    helper.__code__ = code
    with_default.__defaults__ = defaults
    PUT(state)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_change_is_seen(change, restored):
    compiled = fxstack_capture.optimize(fullgraph=True)(everything)
    x, t = torch.ones(2), Thing()
    before = everything(x, t)
    assert torch.equal(compiled(x, t), before)
    assert torch.equal(compiled(x, t), before)
    change(t)
    after = everything(x, t)
    assert not torch.equal(before, after), "the change has no effect: a bad test"
    assert torch.equal(compiled(x, t), after)


def writes(x, a, b):
    a.n = b.n + 1
    a.items.append(b.n)
    return x * (a.n + len(b.items)), a is b


def test_two_arguments_become_one():
    compiled = fxstack_capture.optimize(fullgraph=True)(writes)
    x = torch.ones(2)
    compiled(x, Thing(), Thing())
    t, u = Thing(), Thing()
    got, expected = compiled(x, t, t), writes(x, u, u)
    assert torch.equal(got[0], expected[0])
    assert got[1] is expected[1]
    assert (t.n, t.items) == (u.n, u.items)


def test_one_argument_becomes_two():
    compiled = fxstack_capture.optimize(fullgraph=True)(writes)
    x, same = torch.ones(2), Thing()
    compiled(x, same, same)
    a, b = Thing(), Thing()
    c, d = copy.deepcopy((a, b))
    got, expected = compiled(x, a, b), writes(x, c, d)
    assert torch.equal(got[0], expected[0])
    assert got[1] is expected[1]
    assert (a.n, a.items, b.items) == (c.n, c.items, d.items)
