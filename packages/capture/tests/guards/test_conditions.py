"""Guards as Python conditions: a condition holds for exactly the values for which the guard holds."""

import collections
import copy
import math
import sys
import types

import pytest
import torch

import fxstack_capture
from fxstack_capture.guards.explain import first_failure, guard_condition, guard_text
from fxstack_capture.guards.records import (
    AllDistinct,
    ClassUnchanged,
    Equals,
    Guard,
    HasKey,
    IdentityIs,
    KeysAre,
    LengthIs,
    MarksWithin,
    MembersAre,
    NoOverlap,
    RangeIs,
    SameObject,
    SubclassIs,
    TorchStateIs,
    TypeIs,
    WordIs,
    tensor_facts,
)
from fxstack_capture.guards.torch_state import snapshot
from fxstack_capture.guards.tree import compile_guards
from fxstack_capture.sources import (
    Cell,
    FreeCell,
    Globals,
    InstanceAttr,
    InstanceDict,
    Item,
    Key,
    Local,
    pinned,
)

X, Y = Local("x"), Local("y")


def f(x, y=None): ...


def evaluated(condition, variables):
    """The truth of a condition; one that raises does not hold."""
    modules = {name: module for name, module in sys.modules.items() if "." not in name}
    given = {**modules, "unchanged": lambda *_: True, "marks": lambda _: {}}
    try:
        return bool(eval(condition, {**given, **variables}))
    except (AttributeError, KeyError, IndexError, TypeError):
        return False


def holds(guard, x, y=None):
    tree = compile_guards([guard], f.__code__)
    return first_failure(tree, f, {"x": x, "y": y}) is None


T = torch.arange(6.0).reshape(2, 3)
NUMBERS = [
    0,
    1,
    3,
    -3,
    True,
    False,
    2**62,
    -(2**62),
    2**70,
    0.0,
    -0.0,
    1.0,
    0.5,
    math.inf,
    -math.inf,
    math.nan,
    1j,
    0j,
]
PLAIN = [
    "",
    "1",
    "a'b",
    b"a",
    None,
    ...,
    (1, 2),
    (1, 2, 3),
    (),
    frozenset({1}),
    int,
    torch.nn.Linear,
    len,
    abs,
]
CONTAINERS = [[], [1, 2], [1, 2, 3], {"a": 1}, {"b": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {}, {1, 2}]
OTHERS = [
    range(3),
    range(4),
    range(0, 3, 2),
    range(0, 4, 2),
    collections.OrderedDict(a=1),
    types.SimpleNamespace(a=1),
]
TENSORS = [
    T,
    T.double(),
    T.t(),
    T[:1],
    T[:, :2],
    T.clone().requires_grad_(),
    torch.nn.Parameter(T),
    T.to("meta"),
    T.to_sparse(),
]
POOL = [*NUMBERS, *PLAIN, *CONTAINERS, *OTHERS, *TENSORS]  # fmt: skip
VALUES = (int, float, complex, str, bytes, bool, tuple, frozenset)


def checks_of(value):
    """The checks of ``value`` whose conditions are exact."""
    yield TypeIs(type(value))
    if value is None or value is ... or isinstance(value, bool | type) or value in (len, abs):
        yield IdentityIs(value, id(value))
    if type(value) in VALUES:
        yield Equals(value)
    if type(value) is int and abs(value) < 2**62:
        yield WordIs()
    if isinstance(value, list | tuple | dict | set | frozenset):
        yield LengthIs(len(value))
    if isinstance(value, dict):
        yield KeysAre(tuple(value))
        yield HasKey("a", "a" in value)
    if isinstance(value, range):
        yield RangeIs(value.start, value.stop, value.step)
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        yield tensor_facts(value)


@pytest.mark.parametrize("value", POOL, ids=[f"{k} {type(value).__name__}" for k, value in enumerate(POOL)])
def test_conditions_are_exact(value):
    for check in checks_of(value):
        guard = Guard(X, check)
        condition = guard_condition(guard, {})
        assert evaluated(condition, {"x": value}), condition
        follows = {LengthIs: list | tuple | dict, KeysAre: dict, HasKey: dict}  # a guard of the class
        for other in POOL:
            if isinstance(other, follows.get(type(check), object)):
                assert evaluated(condition, {"x": other}) == holds(guard, other), (condition, other)


class Members:
    def __init__(self, **members):
        vars(self).update(members)


PAIRS = [
    (Guard(X, SameObject(Y)), (T, T), (T, T.clone())),
    (Guard(X, AllDistinct((Y,))), (T, T.clone()), (T, T)),
    (Guard(X, AllDistinct((Y, Item(Y, 0)))), (T, [1]), (T, [T])),
    (Guard(X, SubclassIs(collections.abc.Sized, id(collections.abc.Sized), True)), (list, 0), (int, 0)),
    (Guard(InstanceDict(X), MembersAre(("a",), ("h",))), (Members(h={}), 0), (Members(h={1: 1}), 0)),
    (Guard(InstanceDict(X), MembersAre(("a",), ("h",))), (Members(h={}), 0), (Members(a=1, h={}), 0)),
    (Guard(InstanceAttr(X, "a"), Equals("v")), (Members(a="v"), 0), (Members(a="w"), 0)),
    (Guard(Key(X, "k"), Equals(2)), ({"k": 2}, 0), ({}, 0)),
]


@pytest.mark.parametrize(("guard", "good", "bad"), PAIRS)
def test_conditions_on_other_values(guard, good, bad):
    condition = guard_condition(guard, {})
    for (x, y), holding in ((good, True), (bad, False)):
        assert evaluated(condition, {"x": x, "y": y}) == holds(guard, x, y) == holding


TEXTS = [
    (X, MarksWithin(("dynamic", "static"), (frozenset({0}), frozenset())), "marks(x) <= {'dynamic': {0}}"),
    (X, MarksWithin(("dynamic",), (frozenset(),)), "not marks(x)"),
    (X, NoOverlap((Y,)), "not share_memory(x, y)"),
    (pinned(torch, "torch"), TorchStateIs(snapshot()), "unchanged(torch.state)"),
    (X, IdentityIs(T, id(T)), "unchanged(x)"),
    (X, ClassUnchanged(("b", "a"), (1, 2), (int,)), "unchanged(x.a, x.b, x.__mro__)"),
    (X, ClassUnchanged(tuple("abcdefghij"), (0,) * 10), "unchanged(x.a, x.b, x.c, x.d, x.e, x.f, x.g, x.h, ...)"),
    (Local(".inner3"), SameObject(Item(Local(".0"), 1)), "value_inner3 is value_0[1]"),
    (Cell(FreeCell("net")), TypeIs(int), "type(net) is int"),
    (Key(Globals(), "RATE"), Equals(2), "type(RATE) is int and RATE == 2"),
    (Key(pinned(vars(torch), "globals of torch"), "jit"), IdentityIs(torch.jit, id(torch.jit)), "unchanged(torch.jit)"),
    (Key(pinned(vars(torch), "globals of torch"), "abs"), IdentityIs(len, id(len)), "torch.abs is len"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "check", "text"), TEXTS)
def test_texts(source, check, text):
    assert guard_text(Guard(source, check)) == text


RATE = 3


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.scales = [1, 2]

    def forward(self, x, mode="a", options=None):
        if self.training:
            x = x * 2
        for scale in self.scales:
            x = x * scale
        if x.size(0) % 8 == 0:
            x = x + 1
        if mode == "a" and options is None:
            x = x + RATE
        return self.inner(x)


def of_frame(net):
    records = fxstack_capture.explain(net, dynamic=True)(torch.ones(8, 4)).frames
    (record,) = (one for one in records if one.guards)
    return record


def test_guards_of_a_module():
    net = Net()
    record = of_frame(net)
    texts = [guard_text(guard, record.names) for guard in record.guards]
    conditions = [text.partition("  # needed at ")[0] for text in texts]
    assert "self.training is True" in conditions
    assert "len(self.scales) == 2" in conditions
    assert "(x.size(0) % 8) == 0" in conditions
    (training,) = (text for text in texts if text.startswith("self.training"))
    assert training.endswith(
        "test_conditions.py:%d: if self.training:" % (Net.forward.__code__.co_firstlineno + 1)
    )


def frame(net, x):
    """What the frame of a call of ``net`` can read, with names of ``forward``."""
    return {**vars(torch.nn.modules.module), **globals(), "self": net, "x": x, "args": (x,), "kwargs": {}}


CHANGES = {
    "self.training is True": lambda net, x: (net.eval(), x),
    "len(self.scales) == 2": lambda net, x: (net.scales.append(3) or net, x),
    "(x.size(0) % 8) == 0": lambda net, x: (net, torch.ones(9, 4)),
    "x.dtype == torch.float32": lambda net, x: (net, x.double()),
    "'forward' not in self.__dict__": lambda net, x: (vars(net).update(forward=net.forward) or net, x),
}


@pytest.mark.parametrize("condition", CHANGES)
def test_conditions_of_a_frame_tell_which_input_fits(condition):
    net = Net()
    record = of_frame(net)
    known = [guard_condition(guard, record.names) for guard in record.guards]
    exact = [one for one in known if "unchanged(" not in one]
    assert all(evaluated(one, frame(net, torch.ones(8, 4))) for one in exact)
    changed = frame(*CHANGES[condition](copy.deepcopy(net), torch.ones(8, 4)))
    failing = [one for one in exact if not evaluated(one, changed)]
    assert any(condition in one for one in failing)
