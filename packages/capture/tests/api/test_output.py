"""What programs print, log and warn of: the same text in the same order, without a graph break where nobody can tell."""

import contextlib
import io
import logging
import sys
import unittest
import warnings

import pytest
import torch
from beside import Breaks
from same import OwnStream, difference

import fxstack_capture
from fxstack_capture import Uncompiled, native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
X = torch.ones(3)
LOGGER = logging.getLogger("fxstack.test.output")


class Point:
    def __init__(self):
        self.a = 1

    def __repr__(self):
        return f"Point({self.a})"


POINT = Point()


def options(x):
    y = x + 1
    print("hi", 3, [1, 2], x.shape, None, sep="-", end="!\n")
    print()
    print("%s" % (x.dtype,), flush=True)
    return y * 2


def as_it_was(x):
    print(POINT)
    POINT.a += 1
    print("then", POINT, [POINT])
    return x + POINT.a


def sizes(x):
    print(x.shape[0], f"{x.shape[0]} of {x.shape}", {"shape": x.shape, "pair": (x.shape[0], [x.size()])})
    return x + 1


def logged(x):
    logger = logging.getLogger("fxstack.test.output")
    logger.warning("first %d", 3)
    print("between")
    logger.error("second %s", "a")
    return x + 1


def warned(x):
    y = x + 1
    warnings.warn("one")
    warnings.warn("two", DeprecationWarning)
    for _ in range(2):
        warnings.warn("again")
    return y


def before_an_error(x):
    print("before")
    raise ValueError(x.shape)


def in_a_helper(x):
    def helper(n):
        print("helper", n)
        return n * 2

    return x + sum(map(helper, [1, 2]))


def wrong_options(x):
    try:
        print("a", sep=3)
    except TypeError as error:
        text = str(error)
    try:
        print("a", other=3)
    except TypeError as error:
        return x + 1, text, str(error)


def to_callers(x):
    def helper():
        warnings.warn("mine", stacklevel=2)
        warnings.warn("whose", UserWarning, 3)

    warnings.warn("whose", stacklevel=2)
    helper()
    return x + 1


WHOLE = [options, as_it_was, sizes, logged, warned, before_an_error, in_a_helper, wrong_options, to_callers]


def redirected(x):
    with contextlib.redirect_stdout(io.StringIO()) as inner:
        print("inside")
    print("outside")
    return x + 1, inner.getvalue()


def of_tensors(x):
    print("values", x + 1)
    return x * 2


def to_a_file(x):
    print("error", file=sys.stderr)
    return x + 1


def recorded(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("inside")
    return x + 1, str(seen[0].message)


def as_errors(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("inside")
        except UserWarning as error:
            return x + 1, str(error)


def around_a_break(x):
    items = [1]
    print("first", items)
    items.append(2)
    fxstack_capture.graph_break()
    print("second", items)
    return x + len(items)


BROKEN = [redirected, of_tensors, to_a_file, recorded, as_errors, around_a_break]


def observed(fn, x, stream=io.StringIO):
    """Result, output, log and warnings of a call."""
    POINT.a = 1
    out, err = stream(), io.StringIO()
    handler = logging.StreamHandler(out)
    LOGGER.handlers, LOGGER.propagate = [handler], False
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(record=True) as seen,
    ):
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", Uncompiled)
        try:
            result = str(fn(x))
        except Exception as error:
            result = repr(error)
    given = [(str(w.message), w.category, w.filename, w.lineno) for w in seen]
    return result, out.getvalue(), err.getvalue(), given


def breaks_of(fn, stream=io.StringIO, backend=lambda graph, _: graph.forward):
    """Ids of the graph breaks; fails where anything that is seen differs from plain Python."""
    watch = Breaks()
    compiled = fxstack_capture.optimize(backend, observer=watch)(fn)
    for x in (X, torch.ones(4), X):
        assert observed(compiled, x, stream) == observed(fn, x, stream)
    return watch.ids


@pytest.mark.parametrize("fn", WHOLE)
def test_without_a_break(fn):
    graphs = []
    keep = lambda graph, _: graphs.append(graph) or graph.forward
    assert breaks_of(fn, backend=keep) == []
    assert graphs or fn is before_an_error


@pytest.mark.parametrize("fn", BROKEN)
def test_with_a_break(fn):
    assert breaks_of(fn)


@pytest.mark.parametrize("fn", [options, in_a_helper])
def test_streams_of_the_program(fn):
    assert breaks_of(fn, OwnStream)


def test_another_kind_of_stream_is_another_call():
    compiled = fxstack_capture.optimize()(options)
    for stream in (io.StringIO, OwnStream, io.StringIO):
        assert observed(compiled, X, stream) == observed(options, X, stream)


def test_a_warning_is_given_once_a_place():
    namespace = {"__name__": "fxstack_test_once", "warnings": warnings}
    exec("def fn(x):\n    warnings.warn('once')\n    return x + 1\n", namespace)
    compiled = fxstack_capture.optimize()(namespace["fn"])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(3):
            compiled(X)
    assert [str(w.message) for w in seen] == ["once"]
    assert "__warningregistry__" in namespace


class AlmostNumber:
    def __int__(self):
        return True  # C code warns of it


def asserts_warnings(x):
    case = unittest.TestCase()
    y = x + 1
    with case.assertWarns(DeprecationWarning) as first:
        number = int(AlmostNumber())
    with case.assertWarnsRegex(UserWarning, "again"):
        warnings.warn("again", stacklevel=1)
    return y * number, str(first.warning), len(sys.modules) > 1, "sys" in sys.modules


def test_warnings_that_a_program_asserts():
    """``assertWarns`` asks every loaded module, whose own functions may be compiled too often for the limit."""
    expected, compiled = asserts_warnings(X), fxstack_capture.optimize()(asserts_warnings)
    for _ in range(2):
        assert difference(compiled(X), expected) is None


class Keeping(logging.Handler):
    def __init__(self):
        super().__init__()
        self.kept = []

    def emit(self, record):
        self.kept.append(record.getMessage())


@pytest.mark.parametrize("by", ["class", "filter", "function", "function of the logger"])
def test_what_the_program_hears_of_a_record_is_there_when_it_looks(by):
    own = logging.Manager(logging.RootLogger(logging.WARNING)).getLogger("own")
    handler = Keeping() if by == "class" else logging.Handler()
    kept = handler.kept if by == "class" else []
    if by == "filter":
        handler = logging.StreamHandler(io.StringIO())
        own.addFilter(lambda record: kept.append(record.getMessage()) or True)
    elif by == "function":
        handler.emit = kept.append
    elif by == "function of the logger":
        own.handle = kept.append
    own.addHandler(handler)

    def program(x):
        own.warning("heard")
        return x + len(kept)

    compiled = fxstack_capture.optimize()(program)
    assert [compiled(X)[0].item() - X[0].item() for _ in range(3)] == [1, 2, 3]


def logs_in_its_function(logger, x):
    logger.info("from %s", "inside")
    return x + 1


def names_its_places(x):
    out, logger = io.StringIO(), logging.Manager(logging.RootLogger(10)).getLogger("places")
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s %(funcName)s:%(lineno)d"))
    logger.addHandler(handler)
    fxstack_capture.graph_break()
    logger.info("first")
    x = logs_in_its_function(logger, x)
    logger.warning("shape %s", x.shape[0])
    logger.warning("caller", stacklevel=2)
    logger.error("extra", extra={"rank": 3})
    try:
        x = logs_in_its_function(logger, x * 2)
        raise ValueError("wrong")
    except ValueError as error:
        logger.exception("while %d", 3)
        logger.info("given", exc_info=error)
        logger.info("none", exc_info=False)
    logger.info("stack", stack_info=True)
    return x, [line for line in out.getvalue().splitlines() if "^^^" not in line]


def test_records_name_the_place_and_the_exception():
    def seen(program):
        x, lines = program(X)
        return x.tolist(), lines[:13], lines[13].split(":")[0]

    compiled = fxstack_capture.optimize()(names_its_places)
    for _ in range(2):
        assert seen(compiled) == seen(names_its_places)
