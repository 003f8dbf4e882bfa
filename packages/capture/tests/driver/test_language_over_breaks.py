"""What lives over a graph break is what it was: iterators over dictionaries, exceptions with their contexts, messages."""

import collections
import itertools

import pytest
import torch
from running import check

import fxstack_capture as fx

X = torch.ones(3)


def dict_grows_under_its_iterator(x):
    table = {"a": 1, "b": x, "c": 3}
    try:
        for key in table:
            fx.graph_break()
            table[key + "z"] = 1
    except RuntimeError as error:
        return str(error), list(table)


def iterator_sees_later_values(x):
    table = {"a": 1, "b": x, "c": 3}
    items = iter(table.items())
    first = next(items)
    fx.graph_break()
    table["c"] = x + 1
    return first, list(items)


def argument_changes_under_its_iterator(x, table):
    found = []
    for key, value in table.items():
        table[key] = value + 1
        found.append(x + value)
        fx.graph_break()
        found.append(table[key])
    return found


def argument_gets_keys(x, table):
    values = iter(table.values())
    first = next(values)
    table["new"] = x * 2
    fx.graph_break()
    try:
        return first, next(values)
    except RuntimeError as error:
        return str(error), x + 1


def kinds_of_dict_iterators(x):
    table = collections.defaultdict(int, {"a": 1, "b": x, "c": 3})
    consumed = [iter(table), iter(table.values()), reversed(table), reversed(table.items())]
    for iterator in consumed:
        next(iterator)
    done = iter({"k": 1})
    list(done)
    fx.graph_break()
    table["c"] = x + 1
    return [list(i) for i in (*consumed, done)], type(done).__name__


def error_of_an_operator(x):
    try:
        x = x * 2
        torch.ones(2) + torch.ones(5)
    finally:
        if x.sum() > -1:
            x = x + 1
    return x


def errors_that_name_tensors(x):
    found = []
    for act in (
        lambda: x + "a",
        lambda: "a" + x,
        lambda: torch.nn.Parameter(x) + "a",
        lambda: x(),
        lambda: (lambda **k: k)(**x),
        lambda: x @ "b",
        lambda: x < "a",
    ):
        try:
            act()
        except TypeError as error:
            found.append(str(error))
    return found, x + 1


def thrown_into_a_delegating_generator(x):
    def inner():
        try:
            got = yield x
        except KeyError:
            got = "caught"
        return got

    def outer():
        result = yield from inner()
        yield result

    found = []
    for act in (lambda g: g.throw(KeyError), lambda g: g.send(4), next):
        generator = outer()
        next(generator)
        fx.graph_break()
        found.append(act(generator))
    generator = outer()
    next(generator)
    fx.graph_break()
    try:
        generator.throw(ValueError("v"))
    except ValueError as error:
        found.append((str(error), list(generator)))
    return found, x + 1


def noting(x, log):
    try:
        for part in x:
            yield part * 2
    finally:
        log.append("closed")


def loop_is_left(x, log):
    for part in noting(x, log):
        if part > 1:  # ends the graph
            part += 1
        break
    log.append("left")
    return part


def loops_over_iterators_are_left(x, log):
    makers = enumerate, zip, lambda g: map(abs, g), lambda g: itertools.islice(g, 2)
    for make in makers:
        for part in make(noting(x, log)):
            fx.graph_break()
            break
        log.append("left")
    return part


def function_of_a_loop_is_left(x):
    def first(x):
        for part in noting(x, log):
            fx.graph_break()
            try:
                return part + 1
            finally:
                log.append("found")
        return None

    log = []
    return first(x), log.append("used"), loop_is_left(x, log), log


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (dict_grows_under_its_iterator, (X,)),
        (iterator_sees_later_values, (X,)),
        (argument_changes_under_its_iterator, (X, {"p": 1, "q": 2, "r": 3})),
        (argument_gets_keys, (X, {"p": 1, "q": 2})),
        (kinds_of_dict_iterators, (X,)),
        (error_of_an_operator, (X,)),
        (thrown_into_a_delegating_generator, (X,)),
        (errors_that_name_tensors, (X,)),
        (loop_is_left, (X, [])),
        (loops_over_iterators_are_left, (X, [])),
        (function_of_a_loop_is_left, (X,)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_as_in_plain_python(fn, args):
    check(fn, *args)


class LeavesALoop(torch.nn.Module):
    """The generator closes when the loop is left, before the next statement."""

    def __init__(self):
        super().__init__()
        self.log = []

    def pieces(self, x):
        try:
            for row in x:
                yield row * 2
        finally:
            self.log.append("closed")

    def forward(self, x):
        for _ in self.pieces(x):
            if (x > 0).any():
                break
        self.log.append("left")


@pytest.mark.parametrize("calls", [1, 2])
def test_generators_close_when_a_loop_is_left(calls):
    eager, compiled = LeavesALoop(), LeavesALoop()
    run = fx.optimize()(compiled)
    for _ in range(calls):
        assert eager(X) is run(X) is None
    assert eager.log == compiled.log
