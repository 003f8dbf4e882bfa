"""``functools.cmp_to_key`` objects and views of dictionaries, made inside and from outside."""

import collections
import functools
import heapq
import operator

import pytest
import torch
from running import check

import fxstack_capture as fx

X = torch.tensor([1.0, 2.0, 3.0])
WORDS = ["pear", "fig", "apple", "kiwi", "date"]


def by_length(a, b):
    return (len(a) > len(b)) - (len(a) < len(b))


def refusing(a, b):
    raise ValueError(a + b)


OUTSIDE = functools.cmp_to_key(by_length)
IN_C = functools.cmp_to_key(operator.sub)
HELD = OUTSIDE("four")


def sorted_in_place(x):
    words = list(WORDS)
    words.sort(key=functools.cmp_to_key(by_length))
    return x * len(words[0]), words


def counted(x):
    seen = []

    def compare(a, b):
        seen.append((a, b))
        return by_length(a, b)

    return x, sorted(WORDS, key=functools.cmp_to_key(compare), reverse=True), seen


def in_a_heap(x):
    keys = list(map(OUTSIDE, WORDS))
    heapq.heapify(keys)
    return x * 2, [heapq.heappop(keys).obj for _ in WORDS]


def of_tensors(x):
    pairs = [(n, x * n) for n in (3, 1, 2)]
    return [t for _, t in sorted(pairs, key=functools.cmp_to_key(lambda a, b: b[0] - a[0]))]


@pytest.mark.parametrize(
    "fn",
    [
        sorted_in_place,
        counted,
        in_a_heap,
        of_tensors,
        lambda x: (x * 2, sorted(WORDS, key=OUTSIDE), min(WORDS, key=OUTSIDE)),
        lambda x: (x * 2, sorted([3, 1, 2], key=IN_C), IN_C(1) < IN_C(2)),
        lambda x: (x * (OUTSIDE("abc") < HELD), HELD.obj, HELD == OUTSIDE("abcd")),
        lambda x: (x * 2, sorted(WORDS, key=functools.cmp_to_key(refusing))),
        lambda x: (x * 2, OUTSIDE()),
        lambda x: (x * 2, HELD < 3),
        lambda x: (x * 2, hash(OUTSIDE)),
    ],
)
def test_comparing_keys(fn):
    check(fn, X, fullgraph=True)


def up(a, b):
    return (a or 0) - (b or 0)


def down(a, b):
    return (b or 0) - (a or 0)


@pytest.mark.parametrize(
    "keys",
    [
        [functools.cmp_to_key(f) for f in (up, down, up, operator.sub)],
        [functools.cmp_to_key(up)(n) for n in (1, 2, None)] + [functools.cmp_to_key(up)],
    ],
)
def test_comparing_keys_are_guarded(keys):
    def read(x, key):
        held = key.obj
        return x, held, sorted([3, 1, 2], key=key) if held is None and callable(key) else key < key

    compiled = fx.optimize()(read)
    for key in keys * 2:
        assert compiled(X, key)[1:] == read(X, key)[1:]


class Sub(dict):
    def __len__(self):
        return 77

    def __iter__(self):
        return iter("no")


class Holder:
    def __init__(self, mapping):
        self.mapping = mapping
        self.keys, self.values, self.items = mapping.keys(), mapping.values(), mapping.items()


def written(x, held):
    held.mapping["new"] = 3
    seen = list(held.keys), sum(held.values), len(held.items)
    del held.mapping["new"]
    return x * len(held.keys), seen


PROGRAMS = [
    lambda x, held: x * len(held.keys) + len(held.values) * len(held.items),
    lambda x, held: (x * 2, list(held.keys), tuple(held.values), dict(held.items)),
    lambda x, held: (x * 2, "a" in held.keys, 1 in held.values, ("a", 1) in held.items),
    lambda x, held: (x * 2, held.keys & {"a"}, {"z"} | held.keys, sorted(held.items - {("a", 1)})),
    lambda x, held: (x * 2, held.keys == {"a", "b"}, held.keys > {"a"}, held.keys.isdisjoint("z")),
    lambda x, held: (x * 2, list(reversed(held.items)), next(iter(held.keys)), max(*held.values)),
    lambda x, held: sum((x * v for _, v in held.items), x),
    lambda x, held: (x * 2, held.keys.mapping["b"], held.keys is held.keys, type(held.items)),
    lambda x, held: (x * 2, str(held.keys), f"{held.values}", [*held.keys, *held.values]),
    written,
]


@pytest.mark.parametrize("fn", PROGRAMS)
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, collections.Counter, Sub])
def test_views_of_dictionaries(fn, kind):
    held = Holder(kind(a=1, b=2))
    check(lambda x: fn(x, held), X, fullgraph=True)


def test_the_view_itself_leaves():
    table = {"a": 1}
    held = Holder(table)
    compiled = fx.optimize(fullgraph=True)(lambda x: (x + 1, held.keys, held.keys.mapping))
    assert compiled(X)[1] is held.keys
    assert compiled(X)[2] == table


def test_what_views_show_is_guarded():
    compiled = fx.optimize()(lambda x, view: (x * len(view), "a" in view))
    for table in ({}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}):
        y, found = compiled(X, table.keys())
        assert (y.tolist(), found) == ((X * len(table)).tolist(), "a" in table)


def ordered(x):
    @functools.total_ordering
    class Number:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    return x * 2, Number(1) >= Number(0), max(Number(1), Number(4)).n


def test_names_that_functions_have_already():
    check(ordered, X, fullgraph=True)
