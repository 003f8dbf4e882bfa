"""Every class of records holds everything about its kind of guard: native check, texts, filter kinds, weak form."""

import ast
import collections.abc
import dataclasses
import gc
import inspect
import weakref

import pytest
import sympy
import torch

from fxstack_capture.guards import records
from fxstack_capture.guards.explain import first_failure
from fxstack_capture.guards.records import Check, Guard, Relation, tensor_facts
from fxstack_capture.guards.torch_state import snapshot
from fxstack_capture.guards.tree import compile_guards
from fxstack_capture.guards.weak_references import WeakReference, WeakSources
from fxstack_capture.sources import InstanceDict, Item, Local, Size, TypeOf

X = Local("x")
ITEMS = (Item(X, 0), Item(X, 1))
T = torch.zeros(2, 3)
TWO = (torch.zeros(2), torch.zeros(2))
MARKED = torch.zeros(2)
MARKED.marks = {1}
BY_NAME = {
    cls.__name__: cls
    for _, cls in inspect.getmembers(records, inspect.isclass)
    if issubclass(cls, Check) and cls not in (Check, Relation)
}


class Slotted:
    __slots__ = ("a",)

    def __init__(self, *values):
        for value in values:
            self.a = value


class Plain:
    def __init__(self, **members):
        vars(self).update(members)


def cell(*values):
    def inner():
        return kept

    if values:
        (kept,) = values
    return inner.__closure__[0]


SYMBOL = sympy.Symbol("s0", integer=True)
# By class: a source and a check, an argument for which the check holds, and an argument for which the check fails.
SAMPLES = [
    (X, records.TypeIs(int), 1, "a"),
    (X, records.WordIs(), 1, 2**62),
    (X, records.IdentityIs(T, id(T)), T, T.clone()),
    (X, records.Equals(1), 1, 2),
    (X, records.RangeIs(0, 3, 1), range(3), range(4)),
    (X, records.SlotUnset(Slotted, "a"), Slotted(), Slotted(1)),
    (X, records.CellEmpty(), cell(), cell(1)),
    (X, records.LengthIs(1), [1], []),
    (X, records.KeysAre(("a",)), {"a": 1}, {}),
    (X, records.HasKey("a", True), {"a": 1}, {}),
    (InstanceDict(X), records.MembersAre(("a",), ("h",)), Plain(h={}), Plain(h={}, a=1)),
    (X, records.ClassUnchanged(("real",), (vars(int)["real"],)), int, bool | int),
    (TypeOf(X), records.SubclassIs(collections.abc.Sized, 0, True), [], 1),
    (X, tensor_facts(T), T, T.double()),
    (X, records.MarksWithin(("marks",), (frozenset({0}),)), T, MARKED),
    (X, records.TorchStateIs(snapshot()), T, None),
    (ITEMS[0], records.SameObject(ITEMS[1]), (T, T), TWO),
    (ITEMS[0], records.AllDistinct(ITEMS[1:]), TWO, (T, T)),
    (ITEMS[0], records.NoOverlap(ITEMS[1:]), TWO, (T, T[:1])),
    (ITEMS[0], records.SharesStorage(ITEMS[1:]), (T, T[:1]), TWO),
    (Size(X, 0), records.ShapeHolds(SYMBOL < 3, ((SYMBOL, Size(X, 0)),), "x.size(0) < 3"), T, torch.zeros(3)),
]
by_class = pytest.mark.parametrize(
    ("source", "check", "good", "bad"), SAMPLES, ids=[type(check).__name__ for _, check, *_ in SAMPLES]
)


def f(x): ...


def test_every_class_has_a_sample():
    assert sorted(type(check).__name__ for _, check, *_ in SAMPLES) == sorted(BY_NAME)


@pytest.mark.parametrize("cls", BY_NAME.values(), ids=BY_NAME)
def test_every_class_holds_its_own_data(cls):
    assert cls.__doc__ and isinstance(cls.cost, int) and isinstance(cls.nanoseconds, int)
    assert cls.kinds and all(kind.isupper() for kind in cls.kinds)
    assert cls.demand is not Check.demand
    assert cls.condition is not Check.condition
    assert not issubclass(cls, Relation) or cls.relate is not Relation.relate
    names = {field.name for field in dataclasses.fields(cls)}
    assert {*cls.weak_fields, *cls.weak_tuples} <= names


@by_class
def test_the_native_check_exists(source, check, good, bad):
    tree = compile_guards([Guard(source, check)], f.__code__)
    assert tree.failing(f, (good,)) == -1
    assert isinstance(check, records.TorchStateIs) or tree.failing(f, (bad,)) == 0


@by_class
def test_texts(source, check, good, bad):
    ast.parse(check.condition("x"))
    assert check.demand().startswith("must ") or "must be unchanged" in check.demand()
    failure = first_failure(compile_guards([Guard(source, check)], f.__code__), f, {"x": bad})
    assert failure is None or (failure.demanded == check.demand() and "raised" not in failure.found)


@by_class
def test_the_weak_form_has_the_same_texts(source, check, good, bad):
    weak = check.weaken(WeakSources())
    value = vars(bad) if isinstance(bad, Plain) else bad
    assert type(weak) is type(check)
    assert weak.demand() == check.demand()
    assert weak.describe(value, lambda _source: 3) == check.describe(value, lambda _source: 3)


@pytest.mark.parametrize(
    "make",
    [
        records.TypeIs,
        lambda cls: records.IdentityIs(cls, id(cls)),
        lambda cls: records.KeysAre((cls,)),
        lambda cls: records.ClassUnchanged(("a",), (cls,), (cls, object)),
        lambda cls: records.SubclassIs(cls, id(cls), False),
        lambda cls: records.SlotUnset(cls, "a"),
        lambda cls: dataclasses.replace(tensor_facts(T), cls=cls),
    ],
)
def test_a_class_of_the_program_dies_though_a_weak_form_names_it(make):
    cls = type("C", (), {})
    reference, weak = weakref.ref(cls), make(cls).weaken(WeakSources())
    del cls
    gc.collect()
    assert reference() is None
    assert weak.demand()
    values = [getattr(weak, name) for name in weak.weak_fields]
    values += [value for name in weak.weak_tuples for value in getattr(weak, name)]
    assert any(isinstance(value, WeakReference) for value in values)
