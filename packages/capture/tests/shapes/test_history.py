"""The lattice of observations, by property."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fxstack_capture.shapes.history import DYNAMIC, FrameHistory, Inferred, join, same

ELEMENTS = st.one_of(
    st.none(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf]),
    st.builds(Inferred, st.integers(0, 2)),
    st.just(DYNAMIC),
)
HISTORIES = st.builds(
    FrameHistory, st.dictionaries(st.sampled_from("abc"), ELEMENTS.filter(lambda e: e is not None))
)


def equal(a, b):
    return (a is None and b is None) or (a is not None and b is not None and same(a, b))


@given(ELEMENTS, ELEMENTS, ELEMENTS)
def test_associative(a, b, c):
    assert equal(join(a, join(b, c)), join(join(a, b), c))


@given(ELEMENTS, ELEMENTS)
def test_commutative(a, b):
    assert equal(join(a, b), join(b, a))


@given(ELEMENTS)
def test_idempotent_and_bounds(a):
    assert equal(join(a, a), a)
    assert equal(join(None, a), a)
    assert join(DYNAMIC, a) is DYNAMIC


@given(st.integers(), st.integers())
def test_two_values_are_dynamic(a, b):
    assert join(a, b) == (a if a == b else DYNAMIC)


def test_types_are_told_apart():
    assert join(1, 1.0) is DYNAMIC
    assert join(0.0, -0.0) is DYNAMIC
    assert join(1, Inferred(1)) is DYNAMIC


def texts(h):
    return h.to_json()


@given(HISTORIES, HISTORIES, HISTORIES)
def test_histories_join_in_any_order(a, b, c):
    assert texts(a.merged(b.merged(c))) == texts(a.merged(b).merged(c))
    assert texts(a.merged(b)) == texts(b.merged(a))
    assert texts(a.merged(a)) == texts(a)


@given(HISTORIES)
def test_profiles_round_trip(h):
    assert texts(FrameHistory.from_json(h.to_json())) == h.to_json()


@pytest.mark.parametrize("text", ["[]", '{"a": true}', '{"a": "x"}', '{"a": {"inferred": "b"}}', "{"])
def test_bad_profiles(text):
    with pytest.raises(ValueError):
        FrameHistory.from_json(text)


def test_observe():
    h = FrameHistory()
    assert h.observe("a", 3) == 3
    assert h.observe("a", 3) == 3
    assert h.observe("a", 4) is DYNAMIC
    assert h.observe("a", 3) is DYNAMIC
