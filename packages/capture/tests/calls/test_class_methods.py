"""Class methods in C of the program's classes, which call the program's ``__new__``, ``__init__`` and ``__setitem__``."""

import collections
import datetime as dt

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")

log = []


def logging(base, name):
    method = getattr(base, name)

    def logged(self, *args, **kwargs):
        log.append((name, *args))
        return method(self, *args, **kwargs)

    return type(f"{base.__name__}_{name}", (base,), {name: logged})


Int, Float, Bytes, Date = (logging(base, "__new__") for base in (int, float, bytes, dt.date))
Dict, Ordered = (logging(base, "__setitem__") for base in (dict, collections.OrderedDict))
Made = logging(dict, "__init__")

CALLS = {
    "int.from_bytes": lambda x: Int.from_bytes((1, x.shape[0]), "big"),
    "float.fromhex": lambda x: Float.fromhex("0x1p1"),
    "bytes.fromhex": lambda x: Bytes.fromhex("aa"),
    "date.fromordinal": lambda x: Date.fromordinal(700000).day,
    "dict.fromkeys": lambda x: sum(Dict.fromkeys(x.shape, 2).values()),
    "OrderedDict.fromkeys": lambda x: len(Ordered.fromkeys("ab", 5)),
    "dict.__init__": lambda x: len(Made.fromkeys([x.shape[0]])),
}


@pytest.mark.parametrize("name", CALLS)
def test_effects_in_each_call(name):
    ask = CALLS[name]

    def f(x):
        found = ask(x)
        return x + 1, found

    def effects(call):
        log.clear()
        return [(call(torch.ones(size))[1], len(log)) for size in (2, 2, 3, 3, 4)], list(log)

    assert effects(fx.optimize()(f)) == effects(f)
