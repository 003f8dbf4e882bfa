"""What C code may meet in its arguments: the native walk beside the one in Python."""

from __future__ import annotations

import collections
import random
from types import SimpleNamespace

import pytest
import torch

from fxstack_capture import native
from fxstack_capture.calls import scan

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="compares with the native walk")


class Plain:
    pass


class OwnList(list):
    pass


class OwnDict(dict):
    pass


LEAVES = (1, "a", None, 2.5, Plain, Plain(), torch.ones(1), iter([]), {}.keys(), len, [].append)


def random_value(draw, depth, made):
    kind = draw.randrange(9) if depth else 0
    if kind == 1 and made:
        return draw.choice(made)
    items = [random_value(draw, depth - 1, made) for _ in range(draw.randrange(4))] if kind else ()
    value = {
        0: lambda: draw.choice(LEAVES),
        2: lambda: tuple(items),
        3: lambda: list(items),
        4: lambda: dict(enumerate(items)),
        5: lambda: OwnList(items),
        6: lambda: collections.OrderedDict(enumerate(items)),
        7: lambda: collections.deque(items),
        8: lambda: OwnDict(enumerate(items)),
    }.get(kind, lambda: {1, "b"})()
    made.append(value)
    return value


def trace_of(values, draw):
    dicts = [value for value in values if type(value) is dict]
    lazy = {id(value): None for value in dicts if draw.random() < 0.5}
    opaque = {id(value) for value in LEAVES if draw.random() < 0.2}
    objects = SimpleNamespace(lazy=lazy, opaque=opaque)
    return SimpleNamespace(objects=objects, calls=SimpleNamespace(scanned=dict(scan.CODES)))


@pytest.mark.parametrize("seed", range(40))
def test_both_walks_meet_the_same(seed):
    draw = random.Random(seed)
    made = []
    values = tuple(random_value(draw, 5, made) for _ in range(3))
    trace, expected, found, some = trace_of(made, draw), [], [], []
    flags = scan.scan_interpreted(trace, values, expected)
    assert scan.scan(trace, values, found) == flags
    assert sorted(map(id, found)) == sorted(map(id, expected))
    assert scan.scan(trace, values, some, every=False) == flags
    assert {*map(type, some)} == {*map(type, expected)}
    opaque = trace.objects.opaque
    assert {*map(id, some)} & opaque == {*map(id, expected)} & opaque


def test_values_of_a_dictionary_may_be_left_out():
    trace = trace_of((), random.Random(0))
    assert scan.scan(trace, ({1: Plain()},), [], keys=True) == 0
    assert scan.scan(trace, ({Plain(): 1},), [], keys=True) == scan.PYTHON
    assert scan.scan(trace, ({}, {1: Plain()}), [], keys=True) == scan.PYTHON


def test_what_holds_itself_is_walked_once():
    held = [Plain()]
    held.append(held)
    found = []
    assert scan.scan(trace_of((), random.Random(0)), (held,), found) == scan.PYTHON
    assert found == [held[0]]


def test_an_exception_of_the_walk_is_raised():
    with pytest.raises(TypeError, match="scan"):
        native.scan({}, {}, set(), [], [], True, False, scan.code_of)
