"""Decimals, dates and spans of time from outside: compiled for what they are worth, whichever object it is."""

import datetime as dt
from decimal import Decimal

import pytest
import torch
from counting import Counting

import fxstack_capture as fx

X = torch.tensor([1.0, 2.0])
DAY = dt.datetime(2020, 1, 2)
UTC = dt.datetime(2020, 1, 2, tzinfo=dt.UTC)


class Zone(dt.tzinfo):
    """One of the program's own."""

    def utcoffset(self, when):
        return dt.timedelta(hours=when.hour)

    def dst(self, when):
        return None

    def __repr__(self):
        return "Zone()"


def times(x, a, b):
    span = b - a
    same = a is b, a == b, a < b, {a: 1}.get(b), a.fold == b.fold
    return x * span.total_seconds(), same, f"{a:%Y}", a + span, span, a.tzinfo, a


def decimals(x, a, b):
    return x * float(a) + int(b), str(a), a == b, a < b, bool(a), a is b, hash(a) == hash(b), a


def arithmetic(x, a, b):
    return x * float(a), a + b, f"{a:.1f}", -b


PAIRS = {
    "times": [
        (times, DAY, DAY + dt.timedelta(hours=3)),
        (times, DAY, DAY),
        (times, DAY, DAY + dt.timedelta()),
        (times, DAY, DAY.replace(fold=1)),
        (times, UTC, UTC + dt.timedelta(1)),
        (times, DAY.replace(tzinfo=Zone()), UTC),
    ],
    "decimals": [
        (decimals, Decimal("1.5"), Decimal("1.50")),
        (decimals, Decimal("1.50"), Decimal("1.5")),
        (decimals, one := Decimal(2), one),
        (decimals, one, Decimal(2)),
        (arithmetic, Decimal("1.25"), Decimal(3)),
    ],
}


@pytest.mark.parametrize("name", PAIRS)
def test_each_as_in_plain_python(name):
    for calls in (PAIRS[name], PAIRS[name][::-1]):
        compiled = {fn: fx.optimize()(fn) for fn, *_ in calls}
        for fn, *pair in calls:
            found, expected = compiled[fn](X, *pair), fn(X, *pair)
            assert torch.equal(found[0], expected[0])
            assert repr(found[1:]) == repr(expected[1:])
            assert (found[-1] is pair[0]) == (expected[-1] is pair[0])


def test_equal_ones_share_code():
    backend = Counting()
    compiled = fx.optimize(backend, fullgraph=True)(times)
    for _ in range(3):
        compiled(X, dt.datetime(2020, 1, 2), dt.datetime(2020, 1, 3))
    assert len(backend.graphs) == 1
