"""State outside of the program's objects that it looks at: never frozen at what it was when the code was compiled."""

import abc
import decimal
import functools
import sys
import threading
import weakref

import pytest
import torch

from fxstack_capture import native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")

X = torch.ones(2)


class Seen:
    pass


SEEN = Seen()
REFERENCES = []
CONTEXT = decimal.getcontext()


def set_flag(value):
    torch.backends.mkldnn.enabled = value


def set_precision(value):
    CONTEXT.prec = value


STATES = {
    "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit, (1007, 1000)),
    "mkldnn": (lambda: torch.backends.mkldnn.enabled, set_flag, (False, True)),
    "decimal": (lambda: str(decimal.Decimal(1) / decimal.Decimal(3)), set_precision, (5, 28)),
    "references": (
        lambda: weakref.getweakrefcount(SEEN),
        lambda more: REFERENCES.append(weakref.ref(SEEN)) if more else REFERENCES.clear(),
        (True, False),
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_it_is_what_it_is_now(name):
    get, put, values = STATES[name]
    compiled = optimize()(lambda x: (x + 1, get()))
    found = [(compiled(X)[1], get())]
    for value in values:
        put(value)
        found.append((compiled(X)[1], get()))
    assert all(mine == now for mine, now in found), found


def test_the_thread_is_the_one_that_runs():
    compiled = optimize()(lambda x: (x + 1, threading.get_ident(), threading.current_thread()))
    found = []

    def run():
        found.append(compiled(X)[1:] == (threading.get_ident(), threading.current_thread()))

    run()
    for _ in range(2):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert found == [True] * 3


def test_classes_that_are_registered_later():
    class Base(abc.ABC):  # noqa: B024
        pass

    class Other:
        pass

    @functools.singledispatch
    def kind(_):
        return "any"

    kind.register(Base, lambda _: "base")
    compiled = optimize()(lambda x, value: (x + 1, kind(value)))
    assert [compiled(X, Other())[1] for _ in range(2)] == ["any", "any"]
    Base.register(Other)
    assert compiled(X, Other())[1] == "base"


def test_a_registration_is_made_in_every_call():
    @optimize()
    def register(x, base, cls):
        base.register(cls)
        return x + 1, issubclass(cls, base)

    for _ in range(3):
        base, cls = abc.ABCMeta("Base", (), {}), type("Class", (), {})
        assert register(X, base, cls)[1]
        assert issubclass(cls, base)
