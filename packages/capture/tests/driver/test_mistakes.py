"""A trace that ends with an exception which plain Python does not raise: the result is eager's, and somebody is told."""

import warnings

import pytest
import torch
from running import check

import fxstack_capture as fx
from fxstack_capture.objects.object_model import ObjectModel

X = torch.ones(2)


class Box:
    secret = 3


def read(x):
    return x * Box.secret


def outer(x):
    return read(x) + 1


def positional(x, /, y, *rest, z, **named):
    return x * Box.secret + y + len(rest) + z, named


def closed_over():
    scale = 2

    def inner(x):
        def again():
            return x * scale * Box.secret

        return again()

    return inner


CALLS = (
    (read, (X,), {}),
    (outer, (X,), {}),
    (positional, (X, 1, 2, 3), {"z": 4, "a": 5}),
    (closed_over(), (X,), {}),
)


@pytest.fixture
def blind(monkeypatch):
    """The tracer believes that there is no attribute ``secret``."""
    original = ObjectModel.load_attr

    def load_attr(self, obj, name):
        return original(self, obj, "absent" if name == "secret" else name)

    monkeypatch.setattr(ObjectModel, "load_attr", load_attr)


@pytest.mark.parametrize(("fn", "args", "kwargs"), CALLS)
@pytest.mark.usefixtures("blind")
def test_the_result_is_eager_s_and_one_warning_names_the_error(fn, args, kwargs):
    optimised = fx.optimize()(fn)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            assert str(optimised(*args, **kwargs)) == str(fn(*args, **kwargs))
    texts = [str(warning.message) for warning in said]
    assert len(texts) == 1
    assert "internal error of fxstack-capture" in texts[0]
    assert "has no attribute 'absent'" in texts[0]
    assert "report" in texts[0]


@pytest.mark.parametrize(("fn", "args", "kwargs"), CALLS)
@pytest.mark.usefixtures("blind")
def test_it_is_an_error_where_one_graph_is_asked_for(fn, args, kwargs):
    with pytest.raises(fx.Unsupported, match="internal error of fxstack-capture"):
        fx.optimize(fullgraph=True)(fn)(*args, **kwargs)


def raising(x, /, *rest, z=1, **named):
    y = x + z
    if z:
        raise ValueError(rest, named, y.shape)
    return y


def looking_for_its_class():
    class Base:
        def method(self, x):
            raise KeyError(x.shape)

    class Derived(Base):
        def method(self, *args, **kwargs):
            return super().method(*args, **kwargs)

    return Derived().method


def without_arguments(*args):
    return super().method(*args)


def test_exceptions_of_the_program_are_as_before():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in ({}, {"fullgraph": True}):
            check(raising, X, 2, 3, **options)
            check(lambda x: raising(x, 5, z=2, w=1), X, **options)
            check(looking_for_its_class(), X, **options)
            check(without_arguments, X, **options)
