# ruff: noqa: F821
"""Optimized, Disabled and run_with: callables that turn modes on and off."""

import functools
import gc
import pickle
import weakref

import pytest

from fxstack_capture import native
from fxstack_capture.native import Disabled, Optimized, Owner


def f(a, b=2, *, k=3):
    """Documented."""
    return a, b, k, native.mode()


def optimized(fn):
    return Optimized(fn, lambda *_: native.SKIP, Owner())


def test_optimized_calls_in_compile_mode():
    g = optimized(f)
    assert g(1) == (1, 2, 3, "compile")
    assert g(1, 5, k=6) == (1, 5, 6, "compile")
    assert g(*(1,), b=4) == (1, 4, 3, "compile")
    assert native.mode() == "off"


def test_disabled_calls_with_modes_off():
    inner = Disabled(f)
    outer = optimized(lambda: (inner(1, k=5), native.mode()))
    assert outer() == ((1, 2, 5, "off"), "compile")
    assert inner(1) == (1, 2, 3, "off")


@pytest.mark.parametrize("wrap", [optimized, Disabled])
def test_wrapping_keeps_a_functions_face(wrap):
    g = functools.update_wrapper(wrap(f), f)
    assert (g.__name__, g.__doc__, g.__wrapped__, g.__module__) == ("f", "Documented.", f, __name__)
    assert g.fn is f
    g.anything = 1
    assert g.__dict__["anything"] == 1
    assert callable(g)


@pytest.mark.parametrize("wrap", [optimized, Disabled])
def test_binds_as_a_method(wrap):
    class C:
        @wrap
        def m(self, x):
            return self, x

    c = C()
    assert c.m(1) == (c, 1)
    assert C.m(c, 2) == (c, 2)
    assert c.m.__self__ is c


@pytest.mark.parametrize("wrap", [optimized, Disabled])
def test_weak_references_and_cycles(wrap):
    def g():
        return me

    me = wrap(g)
    reference = weakref.ref(me)
    del me, g
    gc.collect()
    assert reference() is None


def test_subclasses():
    class Mine(Optimized):
        __slots__ = ("extra",)

    m = Mine(f, lambda *_: native.SKIP, Owner())
    m.extra = 1
    assert m(1)[3] == "compile"


@pytest.mark.parametrize("wrap", [optimized, Disabled])
def test_exceptions_restore_the_mode(wrap):
    def fail():
        raise LookupError("x")

    with pytest.raises(LookupError):
        wrap(fail)()
    assert native.mode() == "off"


def test_nesting_restores_the_outer_callback():
    seen = []

    def note(label):
        def callback(func, *_):
            seen.append((label, func.__name__))
            return native.SKIP

        return callback

    def last(): ...

    def within():
        second()
        last()

    def body(): ...

    second = Optimized(body, note("second"), Owner())
    Optimized(within, note("first"), Owner())()
    assert seen == [("first", "within"), ("second", "body"), ("first", "last")]


def test_a_generator_does_not_keep_the_mode():
    def g():
        yield native.mode()
        yield native.mode()

    made = optimized(lambda: g())()
    assert list(made) == ["off", "off"]


def test_wrapped_classes_and_builtins():
    assert optimized(int)("5") == 5
    assert Disabled(len)([1]) == 1
    with pytest.raises(TypeError, match="not callable"):
        Disabled(5)


def test_run_with_arguments():
    assert native.run_with(lambda *_: native.SKIP, Owner(), f, (1,), {"k": 4}) == (1, 2, 4, "compile")
    with pytest.raises(TypeError, match="args must be a tuple"):
        native.run_with(print, Owner(), f, [1])
    with pytest.raises(TypeError, match="kwargs must be a dict"):
        native.run_with(print, Owner(), f, (1,), 5)
    with pytest.raises(TypeError, match="run_with"):
        native.run_with(print)


def test_not_picklable_by_accident():
    with pytest.raises(pickle.PicklingError, match="Optimized"):
        pickle.dumps(optimized(f))
