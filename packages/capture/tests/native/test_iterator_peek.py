"""``native.upcoming`` beside what the iterators give, which depends on layouts that are private to CPython."""

import itertools

import pytest

from fxstack_capture import native


class Holder:
    def __init__(self):
        self.a, self.b, self.c = 1, 2, 3


def with_holes():
    table = dict.fromkeys(range(8))
    for key in (0, 3, 7):
        del table[key]
    return table


CONTAINERS = {
    "list": list("abcde"),
    "tuple": tuple("abcde"),
    "range": range(5, -20, -7),
    "empty range": range(0),
    "extreme range": range(-(1 << 62), 1 << 62, 1 << 61),
    "dict": {"a": 1, "b": 2, 3: 4},
    "holes": with_holes(),
    "attributes": vars(Holder()),
}
WAYS = {
    "iter": iter,
    "reversed": reversed,
    "values": lambda c: iter(c.values()),
    "items": lambda c: iter(c.items()),
}
READ = (list, tuple, range, dict)


def consumed(name, way, count):
    iterator = WAYS[way](CONTAINERS[name])
    return iterator, len(list(itertools.islice(iterator, count)))


@pytest.mark.parametrize("count", range(7))
@pytest.mark.parametrize(
    ("name", "way"),
    [(n, w) for n, c in CONTAINERS.items() for w in WAYS if w in ("iter",) or hasattr(c, w)]
    + [("list", "reversed")],
)
def test_it_is_what_comes(name, way, count):
    iterator, _ = consumed(name, way, count)
    rest = list(consumed(name, way, count)[0])
    assert [native.upcoming(iterator, k) for k in range(len(rest))] == rest
    for k in (len(rest), len(rest) + 1, -1):
        with pytest.raises(IndexError):
            native.upcoming(iterator, k)
    assert list(iterator) == rest
    with pytest.raises(IndexError):
        native.upcoming(iterator, 0)


@pytest.mark.parametrize(
    "iterator", [iter(()), iter(""), iter(set()), (x for x in ()), enumerate([1]), 5, None]
)
def test_others_are_not_read(iterator):
    with pytest.raises(IndexError):
        native.upcoming(iterator, 0)


def test_list_that_shrinks_and_grows():
    values = [1, 2, 3]
    forward, back = iter(values), reversed(values)
    next(forward)
    del values[1:]
    for iterator in (forward, back):
        with pytest.raises(IndexError):
            native.upcoming(iterator, 0)
    values += [7, 8, 9]
    assert native.upcoming(forward, 0) == next(forward) == 7
    assert native.upcoming(back, 0) == next(back) == 8


def test_dict_that_changes():
    table = {1: 2}
    iterator = iter(table)
    table[3] = 4
    with pytest.raises(IndexError):
        native.upcoming(iterator, 0)
