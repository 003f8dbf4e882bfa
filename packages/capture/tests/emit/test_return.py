"""Values that leave a frame are made again: type, content, identity, aliases; effects are replayed."""

import collections
import dataclasses
import functools
import itertools
import sys
import types

import pytest
import torch
from replacing import check

import fxstack_capture

X = torch.tensor([1.0, 2.0, 3.0])
Pair = collections.namedtuple("Pair", "a b")  # noqa: PYI024


ITERTOOLS_STAY = sys.version_info >= (3, 14)
"""They cannot be copied any more: ``test_of_itertools``."""


@dataclasses.dataclass
class Point:
    x: object
    tags: list = dataclasses.field(default_factory=list)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class Loud(dict):
    def __setitem__(self, key, value):
        raise AssertionError("rebuilding runs no user code")


class Items(list):
    def append(self, value):
        super().append(("seen", value))


def gen(n, t):
    for i in range(n):
        yield t + i


def loop():
    a = [X]
    a.append(a)
    return a


def loop_through_tuple(x):
    inner = [x * 2]
    outer = (inner, "k")
    inner.append(outer)
    return outer


def shared(x):
    row = [x + 1]
    return [row, row, {"row": row}]


def loud(x):
    made = Loud()
    dict.__setitem__(made, "k", x + 1)
    made.note = "n"
    return made


def subclasses(x):
    made = Items([x + 1])
    made.append(2)
    return made


def instance(x):
    point = Point(x * 2, ["t"])
    point.extra = point
    return point


def slots(x):
    made = Slotted(x + 1)
    return made, made.a


def exceptions(x):
    try:
        raise ValueError("v", x * 2)
    except ValueError as error:
        error.note = [1]
        return error


def iterators(x):
    values = iter([x, x + 1, 3])
    next(values)
    pairs = zip([1, 2], [x, x])
    next(pairs)
    counting = None if ITERTOOLS_STAY else itertools.count(5)
    return values, pairs, enumerate(["a"], 3), counting, iter(range(4)), reversed([1, 2])


VALUES = {
    "tensor": lambda x: x * 2,
    "input": lambda x: (x, x.relu()),
    "constants": lambda x: (1, 2.5, -0.0, 1j, "s", b"b", None, ..., True, x + 1),
    "containers": lambda x: [(x + 1, [2]), {"a": {1, 2}, "b": frozenset("c")}, collections.deque([1, x], 4)],
    "orders": lambda x: (collections.OrderedDict(b=x + 1, a=2), collections.defaultdict(list, k=[x])),
    "small": lambda x: (slice(1, None, 2), range(3), bytearray(b"q"), x.shape, x + 1),
    "named": lambda x: Pair(x + 1, Pair(1, 2)),
    "classes": lambda x: (Point, len, torch.float32, x.dtype, dataclasses, x + 1),
    "shared": shared,
    "loop_through_tuple": loop_through_tuple,
    "loud": loud,
    "subclasses": subclasses,
    "instance": instance,
    "slots": slots,
    "exceptions": exceptions,
    "iterators": iterators,
    "views": lambda x: ({"a": x + 1}.items(), {"b": 2}.keys()),
    "namespace": lambda x: types.SimpleNamespace(a=x + 1, b=[1]),
    "nan": lambda x: (float("nan"), float("inf"), x + 1),
}


@pytest.mark.parametrize("name", VALUES)
def test_value(name):
    check(VALUES[name], X)


def test_of_itertools():
    """From Python 3.14 on they cannot be copied, so they are made in plain Python, between two graphs."""
    compiled = fxstack_capture.optimize()(lambda x: (x + 1, itertools.count(5), x * 2))
    first, counting, second = compiled(X)
    assert torch.equal(first, X + 1)
    assert torch.equal(second, X * 2)
    assert [next(counting), next(counting)] == [5, 6]


def test_cycle():
    found = check(lambda x: loop() and loop_through_tuple(x), X, graphs=1)
    assert "extend" in found.texts[0]


def test_functions_keep_closures_defaults_and_names():
    def make():
        def f(x):
            count = 0

            def inner(t, k=x * 2, *, q=3):
                nonlocal count
                count += 1
                return t * k + q + count

            inner.note = "n"
            return inner, functools.partial(inner, x), lambda: count

        return f

    def run(f):
        inner, part, read = f(X)
        return [inner(X), part(), read(), inner.__name__, inner.__qualname__, inner.note, inner.__defaults__]

    from replacing import Replaced, same

    replaced = Replaced()
    ours = make()
    assert same(run(lambda x: replaced.call(ours, x)), run(make()))
    assert len(replaced.graphs) == 1


def test_generators_not_started_started_and_finished():
    def f(x):
        fresh, consumed, done = gen(2, x), gen(3, x), gen(0, x)
        next(consumed)
        return fresh, consumed, done, list(done)

    from replacing import Replaced, same

    expected = [list(g) for g in f(X)]
    found = [list(g) for g in Replaced().call(f, X)]
    assert same(found, expected)


def test_symbolic_sizes_do_not_leave_as_symbols():
    check(lambda x: (x.shape[0], x.shape[0] * 2, x.numel(), x.sum()), X)


def test_effects_on_containers():
    def f(x, items, table, members, queue):
        items.append(x + 1)
        items[0] = "first"
        table["k"] = [x * 2]
        del table["gone"]
        members.add("new")
        members.discard("old")
        queue.popleft()
        return len(items)

    check(f, X, [0, 1], {"gone": 1, "stay": 2}, {"old"}, collections.deque([1, 2], 2), graphs=1)


def test_effects_on_objects_globals_and_cells():
    def make():
        count = 0

        def f(x, point):
            nonlocal count
            count += 1
            point.x = x * count
            point.tags.append(count)
            del point.gone
            return count

        return f

    point = Point(X)
    point.gone = 1
    check(None, X, point, graphs=1, make=make)


def test_inputs_are_the_same_objects():
    from replacing import Replaced

    items, inner = [X], {"k": 1}
    found = Replaced().call(lambda x, i, d: (x, i, d, x + 1, [i]), X, items, inner)
    assert found[0] is X and found[1] is items and found[2] is inner and found[4][0] is items


def test_grad_mode_that_stays_changed():
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2

    from replacing import Replaced

    try:
        assert not Replaced().call(f, X.clone().requires_grad_()).requires_grad
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


def test_exception_is_eagers():
    def f(x):
        y = x + 1
        raise KeyError("k", y.shape)

    check(f, X)


def test_the_replacement_reads_like_python():
    found = check(lambda x, table: [x + 1, table["k"]], X, {"k": [1]}, graphs=1)
    assert "_graph" in found.texts[0] and "table['k']" in found.texts[0]


def test_length_of_a_dict_after_a_key_that_was_missed_is_stored():
    def f(x, table):
        table.setdefault(0, x + 1)
        return len(table), list(table)

    check(f, X, {"k": 1, 1: 2})
    check(lambda x, table: (table.setdefault(0, x + 1), len(table)), X, {"k": 1})


@pytest.mark.parametrize("name", ["sort", "topk", "max", "frexp", "aminmax", "svd", "slogdet"])
def test_named_results_of_operators(name):
    arguments = {"topk": (1,), "max": (0,)}.get(name, ())

    def f(x):
        found = getattr(x, name)(*arguments)
        return found, type(found), found[0] + 1

    check(f, torch.eye(2) + 1, graphs=1)
