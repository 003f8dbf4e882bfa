# ruff: noqa: F821, PLE0101 - programs with faults
"""Graph breaks inside of inlined calls: what came before is one graph, what comes after another one."""

import contextlib
import sys
import warnings

import pytest
import torch
from running import check

X = torch.tensor([1.0, 2.0, 3.0])


def leaf(x):
    x = x * 2
    print("leaf")
    return x + 3


def middle(x, log):
    try:
        y = leaf(x + 1)
    finally:
        log.append(1)
    return y * log[0]


def two_deep(x):
    log = [5]
    return middle(x, log) - 1, log


def twice(x):
    return leaf(leaf(x)) * 2


def recursion(x, n=6):
    if n == 0:
        print("bottom")
        return x
    return recursion(x + n, n - 1) * 2


class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        y = x * self.scale
        print("module")
        return y.relu()


NET = torch.nn.ModuleList([Noisy(), Noisy()])


def modules(x):
    return NET[1](NET[0](x)) * 2


class Point:
    def __init__(self, x):
        self.x = x + 1
        print("init")
        self.y = self.x * 2


def constructor(x):
    point = Point(x)
    return point.x + point.y


class Wrong:
    def __init__(self, x):
        print("init")
        return x


def constructor_that_returns(x):
    return Wrong(x + 1)


def keywords(x, *, s=1, **rest):
    print("keywords")
    return x * s, rest


def calls_with_keywords(x):
    return keywords(x + 1, s=3, q=x, z=[1]), keywords(*[x], s=2)


class Entering:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        print("enter")
        self.log.append(1)
        return 3

    def __exit__(self, kind, error, trace):
        print("exit")
        self.log.append(kind)
        return True


@contextlib.contextmanager
def managed(log):
    log.append("in")
    try:
        yield 5
    finally:
        log.append("out")


def raises(x):
    x = x + 1
    print("raises")
    raise ValueError(str(x.shape))


def contexts(x):
    log = []
    with managed(log) as five, torch.no_grad():
        y = leaf(x) * five
        inside = torch.is_grad_enabled()
    with Entering(log) as three:
        y = y * three
        raises(y)
    return y, log, inside, torch.is_grad_enabled()


def caught_by_caller(x):
    try:
        raises(x)
    except ValueError as error:
        return str(error), x * 2


def operation_raises(x):
    x = x + 1
    int("x" * int(x.sum().item()))


def operation_caught_by_caller(x):
    try:
        operation_raises(x)
    except ValueError as error:
        return str(error), x * 2


def raised_again_through_a_break(x):
    error = ValueError("v")
    print("made")
    with contextlib.suppress(KeyError), Entering([]) as three:
        x = x * three
        raise error
    return x


class Leaving:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        print("leaving")


def made_before_and_raised_across_a_break(x):
    error = ValueError("v")
    print("made")
    with Leaving():
        x = x + 1
        raise error


def uncaught(x):
    raises(x)


def uncaught_operation(x):
    operation_raises(x)


def sees_handled(x):
    before = sys.exc_info()[0]
    print("handled")
    after = sys.exc_info()[0]
    try:
        raise KeyError
    except KeyError:
        print("inner")
        inner = sys.exc_info()[0]
    return x * 2, before, after, inner, sys.exc_info()[0]


def in_handler_of_caller(x):
    try:
        raise ValueError
    except ValueError:
        return sees_handled(x + 1)


def bare_raise_of_caller(x):
    def again():
        print("again")
        raise  # noqa: PLE0704

    try:
        raise KeyError("k")
    except KeyError:
        again()


def raises_on_the_way_out(n, x):
    if n == 0:
        print("bottom")
        raise KeyError("k")
    try:
        return raises_on_the_way_out(n - 1, x + 1)
    except KeyError as error:
        if n < 2:
            raise
        raise ValueError(n) from error


def entries(traceback):
    found = []
    while traceback is not None:
        found.append((traceback.tb_frame.f_code.co_name, traceback.tb_lineno))
        traceback = traceback.tb_next
    return found


def tracebacks_of_a_chain(x):
    try:
        raises_on_the_way_out(3, x)
    except ValueError as error:
        print("caught")
        return [entries(e.__traceback__) for e in (error, error.__context__)], x + 1


class Base:
    def apply(self, x):
        print("base")
        return x + 1


class Derived(Base):
    k = 3

    def apply(self, x):
        print("derived")
        return super().apply(x) * self.k

    def loop(self, x):
        read = lambda: self.k
        for _ in range(2):
            print("loop")
            x = super().apply(x) + read()
        return x


def supers(x):
    return Derived().apply(x) + Derived().loop(x)


def nonlocals(x):
    def inner():
        nonlocal q
        q = q + 1
        print("nonlocal")
        return q

    q = x
    try:
        return inner() + q, late
    except UnboundLocalError as error:
        text = str(error)
    late = 1
    return text, q, late


def branch(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def both_branches(x):
    return branch(x), branch(-x)


def comprehension(x):
    return [leaf(x) + i for i in range(3)], {i: leaf(x + i) for i in (1, 2)}


def below_c_code(x):
    return list(map(lambda v: leaf(v) + 1, [x, x + 1]))


def numbers(x):
    for i in range(3):
        print("yield")
        yield x + i


def generators(x):
    total = 0
    for y in numbers(x):
        total = total + leaf(y)
    return total, sum(numbers(x)), [*numbers(x)]


def warns(x):
    warnings.warn("careful", stacklevel=2)
    return x + 1


def warnings_name_the_caller(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = warns(x + 1)
    return y, [(str(w.message), w.lineno) for w in caught]


def described(**facts):
    return facts


def many_keywords(x):
    """More than fifteen keywords are put into a dict piece by piece."""
    many = described(
        a=x, b=1, c=2, d=3, e=4, f=5, g=6, h=7, i=8, j=leaf(x), k=10, l=11, m=12, n=13, o=14, p=15, q=16
    )  # fmt: skip
    return many, described(a=1, b=x, c=leaf(x), d=4)


def half_made_displays(x):
    one = {i: leaf(x + i) for i in range(2)}
    two = {"a": x, "b": leaf(x), "c": leaf(x)}
    return one, two, [*(1, 2), leaf(x), *(4,)], {x.dim(), leaf(x).dim(), 9}


@pytest.mark.parametrize(
    ("program", "graphs"),
    [
        (two_deep, 2),
        (twice, 3),
        (recursion, 2),
        (modules, 3),
        (constructor, 2),
        (constructor_that_returns, 1),
        (calls_with_keywords, 3),
        (many_keywords, None),
        (half_made_displays, None),
        (contexts, None),
        (operation_raises, 1),
        (caught_by_caller, 2),
        (operation_caught_by_caller, 2),
        (uncaught, 1),
        (raised_again_through_a_break, None),
        (made_before_and_raised_across_a_break, None),
        (uncaught_operation, 1),
        (in_handler_of_caller, None),
        (bare_raise_of_caller, None),
        (tracebacks_of_a_chain, None),
        (supers, None),
        (nonlocals, 2),
        (both_branches, 3),
        (comprehension, None),
        (below_c_code, None),
        (generators, None),
        (warnings_name_the_caller, 2),
    ],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_nested(program, graphs):
    check(program, X, graphs=graphs)


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_n_breaks_make_n_resumptions(depth):
    def down(x, n):
        if n:
            x = down(x + 1, n - 1)
            print(n)
        return x * 2

    check(down, X, depth, graphs=depth + 1)


class Verbose:
    """Breaks the graph where something is stored in it or asked of it."""

    def __setattr__(self, name, value):
        value = value + 1
        print("attribute", name)
        object.__setattr__(self, name, value * 2)

    def __setitem__(self, key, value):
        value = value - 1
        print("item", key)
        object.__setattr__(self, key, value * 3)

    def __getitem__(self, key):
        value = getattr(self, key) * 5
        print("asked", key)
        if key == "missing":
            raise KeyError(key)
        return value + 7


def stores(x):
    held = Verbose()
    held.one = x * 2
    return held, x * 4


def stores_items(x):
    held = Verbose()
    held["two"] = x * 2
    return held, x * 4


def asks(x):
    held = Verbose()
    object.__setattr__(held, "three", x + 1)
    return [held["three"], held["three"]], x * 4


def asks_in_try(x):
    held = Verbose()
    object.__setattr__(held, "missing", x + 1)
    try:
        return held["missing"]
    except KeyError as error:
        return error.args, x + 2


def adds_in_place(x):
    held = Verbose()
    held.total = x
    held.total += x
    return held


@pytest.mark.parametrize(
    ("program", "graphs"), [(stores, 2), (stores_items, 2), (asks, 3), (asks_in_try, 2), (adds_in_place, 3)]
)
def test_breaks_in_methods_of_stores_and_subscripts(program, graphs):
    check(program, X, graphs=graphs)
