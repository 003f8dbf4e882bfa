"""Iterators that the caller began and keeps, given to C code: in the graph, and they stand where eager leaves them."""

import collections
import functools
import itertools
import operator
import sys

import pytest
import torch
from counting import Counting

import fxstack_capture as fx

X = torch.tensor([1.0, 2.0, 3.0])


def items(count=6):
    return [X * i for i in range(count)]


PAIRS = {f"k{i}": i for i in range(5)}

BEGUN = {
    "list": lambda: iter(list(range(6))),
    "range": lambda: iter(range(2, 20, 3)),
    "keys": lambda: iter(dict.fromkeys(range(4))),
    "map": lambda: map(lambda n: n + 1, range(5)),
    "zip": lambda: map(operator.itemgetter(0), zip(range(5), "abcd", strict=False)),
    "empty": lambda: iter([]),
    "generator": lambda: (n for n in range(5)),
}


def some(x, it):
    return x * 2, [x + n for n in itertools.islice(it, 2)]


def interrupted(x, it):
    def noted(n):
        fx.graph_break()
        return n + 1

    y = x * 2
    numbers = list(map(noted, it))
    return y * len(numbers), numbers


FUNCTIONS = {
    "list": lambda x, it: (x * len(list(it)), x),
    "tuple": lambda x, it: (x * len(tuple(it)), x),
    "set": lambda x, it: (x * len({*it}), x),
    "sum": lambda x, it: x * sum(it),
    "max": lambda x, it: x * max(it, default=-1),
    "any": lambda x, it: (any(n == 2 for n in it), any(it), x + 1),
    "contains": lambda x, it: x + 1 if 3 in it else x - 1,
    "sorted": lambda x, it: (sorted(it, key=lambda n: -n), x + 1),
    "reduce": lambda x, it: functools.reduce(lambda a, n: a + n, it, x),
    "zip": lambda x, it: [x + n for _, n in zip(range(2), it, strict=False)],
    "itself": lambda x, it: [x + a * b for a, b in zip(it, it, strict=False)],
    "enumerate": lambda x, it: next(((x + i, n) for i, n in enumerate(it) if i), None),
    "dict": lambda x, it: (dict(zip("abc", it, strict=False)), x + 1),
    "chain": lambda x, it: torch.stack([x, *(x + n for n in itertools.chain(it, [7]))]),
    "some": some,
    "arguments": lambda x, it: (lambda *ns: x + len(ns))(*it),
    "unpacked": lambda x, it: (lambda a, *_, b: x + a * b)(*it),
    "deque": lambda x, it: (collections.deque(it, 2), x + 1),
    "counted": lambda x, it: (collections.Counter(it), x + 1),
    "joined": lambda x, it: (",".join(map(str, it)), x + 1),
    "fails": lambda x, it: (x + 1, sum(it, [])),
    "interrupted": interrupted,
}


def outcome(fn, *args):
    """What one can see of a call, as text."""
    try:
        return repr(fn(*args))
    except Exception as error:
        return repr(error)


def ran(fn, make, calls):
    """What calls on one iterator and then the iterator itself give."""
    iterator = make()
    return [outcome(fn, X + i, iterator) for i in range(calls)], list(iterator)


@pytest.mark.parametrize("kind", BEGUN)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_kind(name, kind):
    fn, make = FUNCTIONS[name], BEGUN[kind]
    compiled = fx.optimize()(fn)
    for _ in range(2):
        assert ran(compiled, make, 3) == ran(fn, make, 3)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "interrupted"])
def test_in_one_graph(name):
    compiled = fx.optimize(fullgraph=True)(FUNCTIONS[name])
    iterator = iter([4, 3, 2, 1, 5])
    assert outcome(compiled, X, iterator) == outcome(FUNCTIONS[name], X, iter([4, 3, 2, 1, 5]))


def held(x, it):
    # From Python 3.14 on those of itertools cannot be taken apart, and leave the graph.
    chained = itertools.chain(it, "z") if sys.version_info < (3, 14) else filter(None, it)
    return zip(it, [x, x + 1], strict=False), chained, enumerate(it), x + 1


def test_what_holds_an_iterator_leaves_the_graph():
    ours, plain = iter(range(9)), iter(range(9))
    found, expected = fx.optimize(fullgraph=True)(held)(X, ours), held(X, plain)
    for part, other in zip(found[:3], expected[:3], strict=True):
        assert type(part) is type(other)
        assert str(next(part)) == str(next(other))
    assert list(ours) == list(plain)


def batches(x, it):
    return x * sum(itertools.islice(it, 3))


def test_where_it_stands_is_not_guarded():
    backend = Counting()
    compiled = fx.optimize(backend)(batches)
    ours, plain = iter(range(30)), iter(range(30))
    for _ in range(10):
        assert torch.equal(compiled(X, ours), batches(X, plain))
    assert len(backend.graphs) == 2
