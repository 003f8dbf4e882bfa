"""Frames that get no tensor, compute nothing and miss in each call are left alone before the limit is reached."""

import warnings

import pytest
import torch
from running import Graphs

import fxstack_capture
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
MANY = 20
X = torch.ones(2)


class Cache:
    """Looks names up, as modules with a ``__getattr__`` do."""

    def __init__(self):
        self.found = []
        self.known = frozenset(ITEMS["look_up"])

    def look_up(self, name, _=None):
        first = name in self.known  # each name has guards of its own
        fxstack_capture.graph_break()
        self.found.append(name)
        return name.upper() if first else ""

    def scale(self, number, x=None):
        number = number + 1 if number in self.known else number
        fxstack_capture.graph_break()
        return number if x is None else x * number


def called(method, *more):
    """What ``method`` gives for each item and how often its frames were compiled; its caller runs plainly."""

    @fxstack_capture.skip
    def library():
        return [method(item, *more) for item in ITEMS[method.__name__]]

    def root(x):
        return x + 1, library()

    compiled = fxstack_capture.optimize(Graphs(), dynamic=False)(root)
    compiled.callback.__self__.records = records = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        _, results = compiled(X)
    again = [r for r in records if method.__name__ in r.name and r.verdict.name == "COMPILED"]
    return results, len(again), [str(one.message) for one in said if "compiled" in str(one.message)]


ITEMS = {"look_up": [f"name{number}" for number in range(MANY)], "scale": list(range(MANY))}


def test_names_are_looked_up_plainly_after_two():
    cache = Cache()
    results, compiled, said = called(cache.look_up)
    assert results == [name.upper() for name in ITEMS["look_up"]]
    assert cache.found == ITEMS["look_up"]
    assert compiled == 2
    assert said == []


def test_what_gets_tensors_is_compiled_up_to_the_limit():
    results, compiled, said = called(Cache().scale, X)
    assert all(torch.equal(r, X * n) for r, n in zip(results, ITEMS["scale"], strict=True))
    assert compiled >= 8
    assert any("recompile_limit" in one for one in said)


def test_what_computes_without_getting_tensors_is_compiled_up_to_the_limit():
    held = X + 1

    class Holder(Cache):
        def scale(self, number, x=None):
            number = number + 1 if number in self.known else number
            fxstack_capture.graph_break()
            return held * number

    results, compiled, said = called(Holder().scale)
    assert all(torch.equal(r, held * n) for r, n in zip(results, ITEMS["scale"], strict=True))
    assert compiled >= 8
    assert any("recompile_limit" in one for one in said)
