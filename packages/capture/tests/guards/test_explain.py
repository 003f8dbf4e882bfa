# ruff: noqa: E501
"""Messages: the guard that failed, what it demanded, what was found, and the user's line."""

import pytest
import torch

import fxstack_capture
from fxstack_capture.guards.explain import first_failure
from fxstack_capture.guards.records import (
    NOT_FOUND,
    AllDistinct,
    ClassUnchanged,
    Equals,
    Guard,
    HasKey,
    IdentityIs,
    KeysAre,
    LengthIs,
    MembersAre,
    NoOverlap,
    RangeIs,
    SameObject,
    ShapeHolds,
    TorchStateIs,
    TypeIs,
    WordIs,
    tensor_facts,
)
from fxstack_capture.guards.text import class_name
from fxstack_capture.guards.torch_state import snapshot
from fxstack_capture.guards.tree import compile_guards
from fxstack_capture.sources import Free, InstanceAttr, InstanceDict, Item, Key, Local, Size, pinned

X, Y = Local("x"), Local("y")
STACK = (("outer.py", 1, "main"), ("model.py", 7, "forward"))


def f(x, y=None): ...


def failure(source, check, x, y=None, fn=f):
    tree = compile_guards([Guard(source, check, STACK)], fn.__code__)
    return first_failure(tree, fn, {"x": x, "y": y})


class C:
    value = 1


def with_members(**members):
    made = C()
    vars(made).update(members)
    return made


def shape():
    import sympy

    s = sympy.Symbol("s0", integer=True)
    return ShapeHolds(s < 10, ((s, Size(X, 0)),), "x.size(0) < 10")


T = torch.zeros(2, 3)
CASES = [
    (X, TypeIs(int), "a", "x: must be of type int, but it is a str"),
    (X, WordIs(), 2**62, "x: must be an int with an absolute value below 2**62, but it is 4611686018427387904"),
    (X, Equals(1), 2, "x: must be 1, but it is 2"),
    (Key(X, "k"), Equals(1), {"k": 2}, "x['k']: must be 1, but it is 2"),
    (Key(X, "k"), Equals(1), {}, "x['k']: must be 1, but it does not exist"),
    (InstanceAttr(X, "a"), Equals(1), C(), "x.a: must be 1, but it does not exist"),
    (Item(X, 1), Equals(1), [1], "x[1]: must be 1, but it does not exist"),
    (X, LengthIs(1), [1, 2], "x: must have length 1, but its length is 2"),
    (X, LengthIs(1), 5, "x: must have length 1, but its length is unknown"),
    (X, KeysAre(("a",)), {"b": 1}, "x: must have the keys ('a',) in this order, but the keys are ('b',)"),
    (X, HasKey("a", True), {}, "x: must have the key 'a', but the key is missing"),
    (InstanceDict(X), HasKey("a", False), type("A", (), {"__init__": lambda s: setattr(s, "a", 1)})(), "x.__dict__: must not have the key 'a', but the key exists"),
    (InstanceDict(X), MembersAre(("value",), ("h",)), with_members(value=2, h={1: 2}), "x.__dict__: must not have the keys value, and the dictionaries h must be empty, but the key value exists, h is {1: 2}"),
    (X, RangeIs(0, 3, 1), range(4), "x: must be range(0, 3, 1), but it is range(0, 4)"),
    (X, IdentityIs(T, id(T)), 1, "x: must be the same object as before, Tensor([2, 3], torch.float32, device='cpu'), but it is 1"),
    (X, IdentityIs(len, id(len)), max, "x: must be the same object as before, <built-in function len>, but it is <built-in function max>"),
    (X, SameObject(Y), 1, "x: must be the same object as y, but the two objects are different"),
    (Item(X, 0), AllDistinct((Item(X, 1),)), [T, T], "x[0]: must not be the same object as x[1], but two of the objects are the same"),
    (Item(X, 0), NoOverlap((Item(X, 1),)), [T, T], "x[0]: must not share memory with x[1], but two of the tensors share memory"),
    (X, shape(), torch.zeros(20), "x: must satisfy x.size(0) < 10, but now x.size(0) = 20"),
    (pinned(C, "C"), ClassUnchanged(("value", "no"), (2, NOT_FOUND)), 0, "C: must keep its attributes value, no, but"),
    (pinned(C, "C"), ClassUnchanged(("value",), (2,)), 0, "C.value is 1 (was 2)"),
    (pinned(C, "C"), ClassUnchanged(("value",), (NOT_FOUND,)), 0, "C.value is 1 (was missing)"),
    (pinned(C, "C"), ClassUnchanged((), (), (C, int, object)), 0, f"C: must keep its bases, but the bases of {C.__module__}.C are object (were int, object)"),
    (X, tensor_facts(T), T.double(), "x: must be a torch.Tensor of torch.float32 on cpu, sizes (2, 3), strides (3, 1), requires_grad=False, but dtype is torch.float64 (was torch.float32)"),
    (X, tensor_facts(T), torch.zeros(2, 4), "but sizes is (2, 4) (was (2, 3)), strides is (4, 1) (was (3, 1))"),
    (X, tensor_facts(T), torch.nn.Parameter(T), "class is torch.nn.parameter.Parameter (was torch.Tensor), requires_grad is True (was False)"),
    (X, tensor_facts(T), 5, "but it is a int"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "check", "x", "words"), CASES, ids=lambda v: v[:60] if isinstance(v, str) else ""
)
def test_words(source, check, x, words):
    found = failure(source, check, x)
    assert words in found.message
    assert found.user_line == "model.py:7 in forward"
    assert found.message.endswith("(needed by model.py:7 in forward)")


def test_state_words():
    tree = compile_guards([Guard(X, TorchStateIs(snapshot()))], f.__code__)
    with torch.no_grad():
        message = first_failure(tree, f, {"x": 1, "y": 2}).message
    assert message == "x: torch's global state must be unchanged, but grad mode was True, is now False"


def test_nothing_fails():
    assert failure(X, TypeIs(int), 1) is None


def test_values_in_closures():
    def make(z):
        def inner(x, y=None):
            return z

        return inner

    tree = compile_guards([Guard(Free("z"), Equals(1))], make(1).__code__)
    assert first_failure(tree, make(2), {"x": 0, "y": 0}).message == "z: must be 1, but it is 2"


def test_dead_trees_say_so():
    def local(): ...

    tree = compile_guards([Guard(X, IdentityIs(local, id(local)))], f.__code__)
    assert first_failure(tree, f, {"x": local, "y": 0}) is None
    del local
    found = first_failure(tree, f, {"x": 1, "y": 0})
    assert found.guard is None
    assert found.message == "the compiled code depends on an object that no longer exists"


def test_hostile_objects_cannot_break_a_message():
    class Hostile:
        def __repr__(self):
            raise RuntimeError

        def __len__(self):
            raise RuntimeError

    for check in (Equals(1), LengthIs(1), TypeIs(int)):
        assert "but it" in failure(X, check, Hostile()).message


def test_messages_keep_nothing_alive():
    import gc
    import weakref

    class Local_:
        def method(self): ...

    thing, key = Local_(), Local_()
    guards = [
        Guard(X, TypeIs(Local_)),
        Guard(X, IdentityIs(thing, 0)),
        Guard(Y, KeysAre((key,))),
        Guard(pinned(Local_, "Local_"), ClassUnchanged(("method",), (Local_.method,))),
    ]
    tree = compile_guards(guards, f.__code__)
    assert tree.failing(f, (thing, {key: 1})) == -1
    references = [weakref.ref(o) for o in (thing, key, Local_, Local_.method)]
    del guards, thing, key, Local_
    gc.collect()
    assert [reference() for reference in references] == [None] * 4
    assert tree.dead
    assert "Local_" in str(tree.meta[0])


def test_a_class_without_a_module_has_a_name_in_messages():
    scope = {"__builtins__": {"type": type}}
    exec("cls = type('Made', (), {'k': 2})", scope)
    cls = scope["cls"]
    assert class_name(cls) == "Made"
    assert fxstack_capture.optimize()(lambda x: x + cls().k)(torch.ones(2)).tolist() == [3, 3]
