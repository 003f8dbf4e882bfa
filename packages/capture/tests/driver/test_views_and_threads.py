"""Read-only views of dictionaries and thread-local objects from outside: read, guarded, written, each thread its own."""

import collections
import inspect
import threading
import types

import pytest
import torch
from counting import Counting
from running import check

import fxstack_capture as fx

X = torch.tensor([1.0, 2.0, 3.0])
TABLE = {"a": 2, "t": X}
VIEW = types.MappingProxyType(TABLE)
EMPTY = {}
EMPTY_VIEW = types.MappingProxyType(EMPTY)
ORDERED = types.MappingProxyType(collections.OrderedDict(b=3, a=4))
SIGNATURE = inspect.signature(check)
THREAD = threading.local()


class Slots:
    limit = 3


NAMESPACE = vars(Slots)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * VIEW["a"] + VIEW["t"],
        lambda x: (x * len(VIEW), "a" in VIEW, "b" in VIEW, list(VIEW)),
        lambda x: (x * VIEW.get("b", 7), list(VIEW.items()), VIEW.keys() == {"a", "t"}),
        lambda x: x * VIEW["missing"],
        lambda x: (x * 2, VIEW | {"c": 1}, VIEW.copy(), VIEW == TABLE),
        lambda x: [x * n for n in ORDERED.values()],
        lambda x: x * len(SIGNATURE.parameters) + ("fn" in SIGNATURE.parameters),
        lambda x: x * NAMESPACE["limit"],
        lambda x: (x * 2, len(EMPTY_VIEW), VIEW is VIEW, VIEW),
        lambda x: (VIEW.__setitem__("a", 1), x),
        lambda x: {**VIEW, "x": x * 2},
    ],
)
def test_views(fn):
    check(fn, X)


def through_the_view(x):
    TABLE["new"] = x
    del TABLE["a"]
    y = VIEW["new"] * 2
    TABLE["a"] = 2
    return y, "a" in VIEW, VIEW, TABLE.pop("new")


def test_writes_are_seen_through_it():
    check(through_the_view, X)


def test_what_it_shows_is_guarded():
    compiled = fx.optimize()(lambda x: x * len(EMPTY_VIEW) + EMPTY_VIEW.get("k", 5))
    for value in (1, 2, 3):
        expected = X * len(EMPTY) + EMPTY.get("k", 5)
        assert torch.equal(compiled(X), expected)
        EMPTY["k"] = value
    EMPTY.clear()


def local_state(x):
    THREAD.count = getattr(THREAD, "count", 0) + 1
    if hasattr(THREAD, "extra"):
        x = x * THREAD.extra
    return x + THREAD.count, sorted(vars(THREAD)), sorted(THREAD.__dict__)


def forgetting(x):
    THREAD.gone = x
    y = THREAD.gone * 2
    del THREAD.gone
    try:
        return y, THREAD.gone
    except AttributeError as error:
        return y, str(error)


@pytest.mark.parametrize("fn", [forgetting, lambda x: (x * 2, THREAD.missing)])
def test_thread_local(fn):
    check(fn, X)


class Named(threading.local):
    rate, count = 7, 0

    def bump(self):
        self.count += 1
        return self.count

    @property
    def twice(self):
        return self.count * 2

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return f"no {name}"


class Prepared(threading.local):
    def __init__(self):
        self.count = 5


class Defaults(threading.local):
    def __init__(self):
        self.count = 5
        self.on = False
        self.stack = []
        self.names = {}


class Derived(Defaults):
    rate = 2


class Calling(threading.local):
    made = 0

    def __init__(self):
        Calling.made += 1
        self.count = 5


class Slotted(threading.local):
    __slots__ = ("count",)


def counting(x, local):
    local.count = 3
    return x * local.count, isinstance(local, threading.local), type(local)


def named(x, local):
    local.t = x * 2
    y = local.t + local.bump() * local.rate + local.twice
    del local.t
    return y, local.t, sorted(vars(local)), "count" in local.__dict__, local.__dict__.pop("count")


def pushed(x, local):
    local.stack.append(local.count)
    local.on = not local.on
    local.count += 1
    return x * local.count, local.stack, vars(local)


def missing(x, local):
    try:
        return x * local.nothing
    except AttributeError as error:
        return x, str(error)


@pytest.mark.parametrize(
    ("kind", "fn", "fullgraph"),
    [
        *((Named, fn, True) for fn in (counting, named)),
        *((kind, fn, True) for kind in (Prepared, Defaults, Derived) for fn in (counting, missing)),
        *((kind, pushed, True) for kind in (Defaults, Derived)),
        *((Calling, fn, False) for fn in (counting, missing)),
        (Prepared, lambda x, local: (x * 2, sorted(vars(local)), local.__dict__["count"]), True),
        *((Slotted, fn, False) for fn in (counting, missing)),
    ],
)
@pytest.mark.filterwarnings("error:internal error")
def test_classes_of_thread_locals(kind, fn, fullgraph):
    plain, local = kind(), kind()
    compiled = fx.optimize(fullgraph=fullgraph)(lambda x: fn(x, local))
    seen = [(str(fn(X, plain)), str(compiled(X))) for _ in range(3)]
    thread = threading.Thread(target=lambda: seen.append((str(fn(X, plain)), str(compiled(X)))))
    thread.start()
    thread.join()
    assert len(seen) == 4
    assert [expected for expected, _ in seen] == [found for _, found in seen]


def test_every_thread_has_its_own():
    backend = Counting()
    compiled = fx.optimize(backend)(local_state)
    results = {}

    def run(name, fn, extra):
        if extra is not None:
            THREAD.extra = extra
        results[name] = [fn(X) for _ in range(4)], dict(vars(THREAD))

    for name, extra in (("first", None), ("second", 3), ("third", X)):
        for kind, fn in (("plain", local_state), ("compiled", compiled)):
            thread = threading.Thread(target=run, args=((kind, name), fn, extra))
            thread.start()
            thread.join()
        (plain, held), (found, kept) = results["plain", name], results["compiled", name]
        assert [(y.tolist(), *rest) for y, *rest in plain] == [(y.tolist(), *rest) for y, *rest in found]
        assert held["count"] == kept["count"] == 4
    assert not hasattr(THREAD, "count")
    assert len(backend.graphs) <= 8
