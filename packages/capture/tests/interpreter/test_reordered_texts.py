"""Strings made of tensors that only reorderable functions get: they are made behind the graph."""

import io
import logging
import logging.handlers
import warnings
from contextlib import redirect_stdout

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")

X = torch.ones(3)
LOG = logging.getLogger("fxstack.test_reordered_texts")
SEEN = []


def note(*values, **named):
    SEEN.append((*values, *named.items()))


FUNCTIONS = frozenset({print, note, warnings.warn, LOG.warning})


def observe(fn, argument):
    """What a call prints, warns, notes and logs, and its result."""
    SEEN.clear()
    handler = logging.handlers.BufferingHandler(100)
    LOG.addHandler(handler)
    with redirect_stdout(io.StringIO()) as out, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        result = fn(argument)
    LOG.removeHandler(handler)
    logged = [record.getMessage() for record in handler.buffer]
    return out.getvalue(), [str(each.message) for each in warned], list(SEEN), logged, repr(result)


def graphs(fn, argument=X):
    """The number of graphs of a call that does what the plain call does."""
    found = []
    options = fx.CaptureOptions(reorderable_functions=FUNCTIONS)
    compiled = fx.optimize(lambda graph, _: (found.append(graph), graph.forward)[1], options=options)(fn)
    assert observe(compiled, argument) == observe(fn, argument)
    return len(found)


def in_a_function(x):
    def inner(y, name):
        message = f"{name}: {y}"
        print(message, name)
        return y + 1

    return inner(x, "a") + inner(x * 2, "b")


def in_a_loop(x):
    for i in range(3):
        message = "{} {}".format(i, x)  # noqa: UP032
        note(message)
        copied = message
        print(copied)
        x = x * 2
    return x


def in_a_generator(x):
    def each():
        message = f"{x.sum()}"
        yield 1
        print(message)
        yield 2

    return x * sum(each())


def in_a_handler(x):
    message = f"{x + 1}"
    try:
        print(message, 1 // 0)
    except ZeroDivisionError:
        print("no", message)
    return x * 2


def with_a_parameter(x, w=torch.nn.Parameter(torch.ones(()))):  # noqa: B008
    print(f"{w}", w)
    return x * 2


def stored(x):
    message = f"{x + 1}"
    print(message)
    return x * 2, message


def ends_with(call):
    """A program that calls ``call`` with a tensor of the graph between two parts of the graph."""

    def fn(x):
        y = x + 1
        call(y)
        return y * 2

    return fn


DEFERRED = {
    "f-string": ends_with(lambda y: print(f"y = {y}", "b", sep="-")),
    "conversions": ends_with(lambda y: print(f"{y!r:>40}|{y!s}|{y!a}|{y.shape}")),
    "numbers": ends_with(lambda y: print(f"{y.sum():.3f}|{y.sum() > 1:2}|{y.long().sum():05d}")),
    "warning": ends_with(lambda y: warnings.warn(f"{y.shape} {y}")),  # noqa: B028
    "method": ends_with(lambda y: LOG.warning(f"{y}")),  # noqa: G004
    "arguments": ends_with(lambda y: LOG.warning("%s %d", y, 3)),
    "function": ends_with(lambda y: note(f"{y}", 3)),
    "str": ends_with(lambda y: print(str(y), repr(y))),
    "format": ends_with(lambda y: print("{0} {a!r:>30} {0}".format(y, a=y))),  # noqa: UP030
    "percent": ends_with(lambda y: print("%s" % y, "%r %d" % (y, 3))),  # noqa: UP031
    "parameter": with_a_parameter,
    "inner function": in_a_function,
    "loop": in_a_loop,
    "generator": in_a_generator,
    "handler": in_a_handler,
}


@pytest.mark.parametrize("name", DEFERRED)
def test_deferred(name):
    assert graphs(DEFERRED[name]) == 1


def captured_by_a_function(x):
    message = f"{x + 1}"
    print(message)
    return x * 2 + (lambda: len(message))()


def assigned_in_an_argument(x):
    print(message := f"{x + 1}")
    return x * 2, message


def length(x):
    message = f"{x + 1}"
    print(message)
    return x * 2 + len(message)


def method(x):
    message = f"{x + 1}"
    print(message.upper())
    return x * 2


def all_variables(x):
    message = f"{x + 1}"
    names = locals()
    return x * 2 + len(names["message"])


def in_a_comprehension(x):
    message = f"{x + 1}"
    return [print(message) for _ in range(2)], x * 2


def before_a_graph_break(x):
    message = f"{x + 1}"
    print(x.tolist())
    note(message)
    return x * 2


OTHER = [
    *(stored, length, method, captured_by_a_function, assigned_in_an_argument, all_variables),
    *(in_a_comprehension, before_a_graph_break),
]


@pytest.mark.parametrize("fn", OTHER)
def test_strings_with_other_uses_are_made_at_once(fn):
    assert graphs(fn) >= 1


ERRORS = {
    "specification": ends_with(lambda y: print(f"{y:d}")),
    "number": ends_with(lambda y: print(f"{y.sum():s}")),
    "format": ends_with(lambda y: print("{:d}".format(y))),
    "few": ends_with(lambda y: print("{} {}".format(y))),  # noqa: F524, UP032
    "percent": ends_with(lambda y: print("%d" % y)),  # noqa: UP031
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_raised_where_the_string_is_made(name):
    def fn(x):
        try:
            return ERRORS[name](x)
        except Exception as error:
            print("before", type(error), error)
            return x * 3

    graphs(fn)


def test_other_functions_get_strings(capsys):
    fn = ends_with(lambda y: print(f"{y}"))
    found = []
    fx.optimize(lambda graph, _: (found.append(graph), graph.forward)[1])(fn)(X)
    assert (len(found), capsys.readouterr().out) == (2, f"{X + 1}\n")


def test_percent_of_a_string_formats_the_tensor():
    def fn(x):
        return "%s" % (x + 1), "%r" % x, b"%a" % (x * 2)  # noqa: UP031

    assert fx.optimize()(fn)(X) == fn(X)
