"""Registering a class with an abstract one changes what ``isinstance``, ``issubclass`` and patterns say."""

import abc
import collections.abc
import gc
import weakref

import pytest
import torch
from running import Graphs

import fxstack_capture
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
X = torch.zeros(2)


class Objects:
    """Classes of one test: ``Outer`` is above ``Inner``, ``Kind`` above ``Derived``; nothing is registered."""

    def __init__(self):
        self.Outer = abc.ABCMeta("Outer", (), {})
        self.Inner = abc.ABCMeta("Inner", (self.Outer,), {})
        self.Kind = type("Kind", (), {})
        self.Derived = type("Derived", (self.Kind,), {})


def answers(ask, *changes):
    """(what ``ask(world, x)`` gives plainly before and after each change, the same compiled, how many graphs)."""
    objects, graphs = Objects(), Graphs()
    compiled = fxstack_capture.optimize(graphs)(ask)
    plain, found = [], []
    for change in (lambda _: None, *changes):
        change(objects)
        found.append(compiled(objects, X))
        plain.append(ask(objects, X))
    same = all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    return same, [bool(a.any()) for a in plain], len(graphs)


def unrelated(_objects):
    abc.ABCMeta("Other", (), {}).register(type("Else", (), {}))


def register_kind(objects):
    objects.Outer.register(objects.Kind)


def register_below(objects):
    objects.Inner.register(objects.Kind)


ASKING = {
    "isinstance": lambda w, x: x + 1 if isinstance(w.Kind(), w.Outer) else x * 1,
    "of a tuple": lambda w, x: x + 1 if isinstance(w.Kind(), (int, (w.Outer, str))) else x * 1,
    "of a union": lambda w, x: x + 1 if isinstance(w.Kind(), int | w.Outer) else x * 1,
    "issubclass": lambda w, x: x + 1 if issubclass(w.Kind, w.Outer) else x * 1,
    "derived": lambda w, x: x + 1 if issubclass(w.Derived, w.Outer) else x * 1,
    "from outside": lambda w, x: x + 1 if isinstance(w.__dict__.get("k"), w.Outer) else x * 1,
    "made inside": lambda w, x: x + 1 if isinstance(type("New", (w.Kind,), {})(), w.Outer) else x * 1,
}


@pytest.mark.parametrize("register", [register_kind, register_below])
@pytest.mark.parametrize("ask", [name for name in ASKING if name != "from outside"])
def test_registering(ask, register):
    assert answers(ASKING[ask], register) == (True, [False, True], 2)


def test_an_object_from_outside():
    def keep(objects):
        objects.k = objects.Kind()

    assert answers(ASKING["from outside"], keep, register_kind) == (True, [False, False, True], 3)


@pytest.mark.parametrize("ask", [name for name in ASKING if name != "from outside"])
def test_other_registrations_compile_nothing(ask):
    assert answers(ASKING[ask], unrelated, unrelated) == (True, [False] * 3, 1)
    assert answers(ASKING[ask], register_kind, unrelated) == (True, [False, True, True], 2)


@pytest.mark.parametrize("value", [3, 2.5, "text", X])
def test_values_and_tensors(value):
    def ask(objects, x):
        return x + 1 if isinstance(value, objects.Outer) else x * 1

    assert answers(ask, unrelated, lambda w: w.Outer.register(type(value))) == (
        *(True, [False, False, True]),
        2,
    )


def test_patterns():
    def ask(objects, x):
        match objects.Kind():
            case [*_]:
                return x + 1
            case {**_rest}:
                return x + 2
            case _:
                return x * 1

    def as_mapping(objects):
        objects.Kind.__len__ = lambda _: 0
        objects.Kind.keys = lambda _: ()
        collections.abc.Mapping.register(objects.Kind)

    assert answers(ask, unrelated, as_mapping) == (True, [False, False, True], 2)


def test_a_hook_is_asked_where_the_program_would():
    """An answer that is cached stays, whatever the hook would say, until something is registered."""

    def ask(objects, x):
        return x + 1 if issubclass(objects.Kind, collections.abc.Sized) else x * 1

    def with_length(objects):
        objects.Kind.__len__ = lambda _: 0

    assert answers(ask, with_length, unrelated) == (True, [False, False, True], 2)


def test_nothing_is_kept_alive():
    objects = Objects()
    kinds = [weakref.ref(cls) for cls in vars(objects).values()]
    compiled = fxstack_capture.optimize(Graphs())(ASKING["isinstance"])
    compiled(objects, X)
    del objects
    gc.collect()
    assert [kind() for kind in kinds] == [None] * 4


def test_it_is_explained():
    objects, graphs = Objects(), Graphs()
    options = fxstack_capture.CaptureOptions(error_on_recompile=True)
    compiled = fxstack_capture.optimize(graphs, options=options)(ASKING["issubclass"])
    compiled(objects, X)
    register_kind(objects)
    with pytest.raises(
        fxstack_capture.RecompileError, match="not be a subclass of .*Outer.*, but it is a subclass"
    ):
        compiled(objects, X)
