"""AttributeError of attributes that Python code or a property computes: name, object and text."""

import pytest
import torch

import fxstack


class OwnProperty(property):
    pass


def refuse(*_args):
    raise AttributeError("refused")


class OwnDescriptor:
    __get__ = refuse


class ByProperty:
    a = property(refuse)


class ByOwnProperty:
    a = OwnProperty(refuse)


class ByHook:
    __getattr__ = refuse


class ByDescriptor:
    a = OwnDescriptor()


class ByEveryAccess:
    __getattribute__ = refuse


class WithoutGetter:
    a = OwnProperty()


KINDS = [ByProperty, ByOwnProperty, ByHook, ByDescriptor, ByEveryAccess, WithoutGetter]


def load(obj):
    return obj.a


def load_by_name(obj):
    return getattr(obj, "a")  # noqa: B009 - the call is the case


def store(obj):
    obj.a = 1


def delete(obj):
    del obj.a


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("access", [load, load_by_name, store, delete])
@pytest.mark.filterwarnings("error:internal error")
def test_error(kind, access):
    obj = kind()

    def fn(x):
        y = x + 1
        try:
            access(obj)
        except AttributeError as error:
            return y, error.name, error.obj is obj, str(error)
        return y

    eager = fn(torch.ones(2))
    obj = kind()
    assert str(fxstack.compile(fn, backend="eager")(torch.ones(2))) == str(eager)
