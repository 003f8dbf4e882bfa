"""Iterators that were begun before a graph: what is left of a loop is in it, and they stand where eager leaves them."""

import itertools
import sys

import pytest
import torch
from counting import Counting
from running import check

import fxstack_capture as fx

X = torch.tensor([1.0, 2.0, 3.0])
LOG = []


def items(count=6):
    return [X * i for i in range(count)]


ITERABLES = {
    "list": items,
    "tuple": lambda: tuple(items()),
    "range": lambda: range(2, 20, 3),
    "dict": lambda: dict.fromkeys(range(3)),
    "values": lambda: dict(enumerate(items())).values(),
    "items": lambda: {f"k{i}": t for i, t in enumerate(items())}.items(),
    "reversed list": lambda: reversed(items()),
    "enumerate": lambda: enumerate(items(), 4),
    "zip": lambda: zip(items(), range(9), items(4), strict=False),
    "enumerate of zip": lambda: enumerate(zip(items(), items())),
    "map": lambda: map(lambda t, n: (t * n, n), items(), range(5)),
    "filter": lambda: filter(lambda t: t.dim() == 1, items()),
    "filter none": lambda: filter(None, range(5)),
    "strict zip": lambda: zip(items(), range(6), strict=True),
    "generator": lambda: (t + 1 for t in items()),
    "string": lambda: "abc",
    "set": lambda: {3},
    "zip of count": lambda: zip(itertools.count(2), items(), itertools.count(5, 3)),
    "zip of a count of floats": lambda: zip(itertools.count(0.5), items()),
    "repeat": lambda: itertools.repeat(X, 3),
    "enumerate of repeat": lambda: enumerate(itertools.repeat(7, 2)),
    "chain": lambda: itertools.chain(items(2), items(1)),
    "large range": lambda: range(1 << 70, (1 << 70) + 3),
    "empty": list,
}


def as_tensor(item):
    if isinstance(item, tuple):
        return sum(as_tensor(part) for part in item)
    return torch.tensor(float(ord(item[0]))) if isinstance(item, str) else item % 1000


def breaking_loop(x, make):
    for item in make():
        x = x + as_tensor(item)
        fx.graph_break()
        x = x * 1.5
    return x


def begun_before(x, make):
    iterator = iter(make())
    first = next(iterator, None)
    fx.graph_break()
    for item in iterator:
        x = x * 2 + as_tensor(item)
    return x, first, next(iterator, "finished")


def stopped_early(x, make):
    iterator = iter(make())
    fx.graph_break()
    x = x + 1
    second = [as_tensor(item) + x for item in itertools.islice(iterator, 2)]
    fx.graph_break()
    for item in iterator:
        x = x + as_tensor(item)
        break
    fx.graph_break()
    return x, second, list(iterator)


def in_inlined_frame(x, make):
    return breaking_loop(x + 1, make) * 2 + breaking_loop(x, make)


@pytest.mark.parametrize("name", ITERABLES)
@pytest.mark.parametrize("fn", [breaking_loop, begun_before, stopped_early, in_inlined_frame])
def test_every_kind(fn, name):
    check(fn, X, ITERABLES[name])


def lists(x, xs):
    for t in xs:
        x = x + t
        fx.graph_break()
    return x


def pairs(x, xs):
    for i, (name, t) in enumerate({f"p{i}": t for i, t in enumerate(xs)}.items()):
        x = x + t
        fx.graph_break()
    return x, i, name


def zipped(x, xs):
    for a, b in zip(xs, xs[::-1], strict=True):
        x = x + a * b
        fx.graph_break()
    return x


def parameters(x, xs):
    module = torch.nn.ParameterList(xs)
    for _, p in module.named_parameters():
        x = x + p.detach()
        fx.graph_break()
    return x


def inlined(x, xs):
    y, number, name = pairs(x + 1, xs)
    return y * 2, number, name


@pytest.mark.parametrize("fn", [lists, pairs, zipped, parameters, inlined])
def test_graphs_do_not_grow_with_the_items(fn):
    assert len(check(fn, X, items(30), calls=2)) <= 5


def rest(x, iterator):
    for t in iterator:
        x = x + t
    return x


def test_rest_of_a_loop_is_one_graph():
    backend = Counting()
    optimised = fx.optimize(backend, fullgraph=True)(rest)
    for consumed in (0, 1, 1):
        iterator = iter(items())
        expected = sum(list(itertools.islice(iterator, consumed, None)), X)
        iterator = iter(items())
        list(itertools.islice(iterator, consumed))
        assert torch.equal(optimised(X, iterator), expected)
        assert list(iterator) == []
    assert len(backend.graphs) == 2


def two(x, one, other):
    for a in one:
        x = x + a
        break
    for b in other:
        x = x * b
        break
    return x


def test_one_iterator_or_two():
    compiled = fx.optimize()(two)
    for make in (lambda: (iter(items()), iter(items())), lambda: (iter(items()),) * 2):
        expected, found = make(), make()
        assert torch.equal(compiled(X, *found), two(X, *expected))
        assert len(list(found[0])) == len(list(expected[0]))


def same(x, one, other):
    return x + 1 if one is other else x - 1


def test_identity():
    compiled = fx.optimize()(same)
    one, other = iter(items()), iter(items())
    assert torch.equal(compiled(X, one, other), X - 1)
    assert torch.equal(compiled(X, one, one), X + 1)


def pairwise(x, xs):
    iterator = iter(xs)
    both = zip(iterator, iterator, strict=False)
    fx.graph_break()
    for a, b in both:
        x = x + a * b
    return x, list(iterator)


def shared_by_enumerate(x, xs):
    iterator = iter(xs)
    numbered = enumerate(iterator)
    fx.graph_break()
    for i, t in numbered:
        x = x + t * i
        x = x + next(iterator, 1)
        if i == 1:
            break
    fx.graph_break()
    return x, next(numbered, None), list(iterator)


def appended_to(x, xs):
    for t in xs:
        x = x + t
        fx.graph_break()
        if len(xs) < 9:
            xs.append(t + 1)
    return x, xs


def grown_unseen(x, xs):
    iterator = iter(xs)
    fx.graph_break()
    xs.append(x)
    for t in iterator:
        x = x + t
    xs.append(x)
    return x, next(iterator, "finished")


def cleared(x, xs):
    iterator = iter(xs)
    next(iterator)
    fx.graph_break()
    x = x + next(iterator)
    xs.clear()
    fx.graph_break()
    return x, list(iterator)


def removed_behind(x, xs):
    for t in xs:
        x = x + t
        fx.graph_break()
        if len(xs) > 2:
            del xs[0]
    return x


def dictionary_grows(x, xs):
    table = dict(enumerate(xs))
    for k, t in table.items():
        x = x + t
        fx.graph_break()
        table[k + 100] = x
    return x


def values_replaced(x, xs):
    table = dict(enumerate(xs))
    for k, t in table.items():
        x = x + t
        fx.graph_break()
        if k + 1 in table:
            table[k + 1] = x
    return x


def function_with_effects(x, xs):
    LOG.clear()
    mapped = map(lambda t: LOG.append(len(LOG)) or t * 2, xs)
    next(mapped)
    fx.graph_break()
    for t in mapped:
        x = x + t
    return x, list(LOG)


def function_that_raises(x, xs):
    mapped = map(lambda t: t.view(7) if t.sum() is None else t.missing, xs)
    fx.graph_break()
    x = x * 2
    for t in mapped:
        x = x + t
    return x


def uneven(x, xs):
    left, right = iter(xs), iter(xs[:2])
    both = zip(left, right, strict=False)
    fx.graph_break()
    for a, b in both:
        x = x + a - b
    return x, len(list(left)), list(right)


def nested(x, xs):
    outer = iter([xs, xs[:1]])
    fx.graph_break()
    for inner in outer:
        for t in inner:
            x = x + t
            fx.graph_break()
    return x


@pytest.mark.parametrize(
    "fn",
    [
        pairwise,
        shared_by_enumerate,
        appended_to,
        grown_unseen,
        cleared,
        removed_behind,
        dictionary_grows,
        values_replaced,
        function_with_effects,
        function_that_raises,
        uneven,
        nested,
    ],
)
def test_containers_and_others_that_change(fn):
    check(fn, X, items())


def unread_names(x, table):
    for name, t in table.items():
        x = x + t
        fx.graph_break()
        last = name
    return x, last


def whole_tuple(x, table):
    seen = []
    for pair in table.items():
        x = x + pair[1]
        fx.graph_break()
        seen.append(pair)
    return x, seen


def wrong_count(x, table):
    for a, b, c in table.items():
        x = x + a
    return x


@pytest.mark.parametrize("fn", [unread_names, whole_tuple, wrong_count])
def test_targets_of_loops(fn):
    check(fn, X, {f"k{i}": t for i, t in enumerate(items())})


def aliased(x, xs, out):
    for t in xs:
        x = x + t
        if len(out) < 9:
            out.append(x)
        fx.graph_break()
    return x


def test_list_that_turns_out_to_be_the_one():
    compiled = fx.optimize()(aliased)
    for make in (lambda: (items(), []), lambda: (items(),) * 2, lambda: ([one := items(), one])):
        expected, found = make(), make()
        assert torch.equal(compiled(X, *found), aliased(X, *expected))
        assert len(found[1]) == len(expected[1])


def taken_from(x, iterator):
    first = next(iterator)
    return x + first * next(iterator), first


@pytest.mark.parametrize("make", [itertools.count, itertools.repeat])
def test_a_counter_is_compiled_for_all_numbers(make):
    backend = Counting()
    compiled = fx.optimize(backend)(taken_from)
    for start in (3, 4, 10, 25):
        ours, plain = make(start), make(start)
        found, expected = compiled(X, ours), taken_from(X, plain)
        assert torch.equal(found[0], expected[0])
        assert found[1] == expected[1]
        assert next(ours) == next(plain)
    if sys.version_info < (3, 12):  # they end the graph there
        assert len(backend.graphs) == 2
