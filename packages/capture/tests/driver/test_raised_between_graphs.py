"""Exceptions that an operation between two graphs raised: their handlers are compiled, and see what plain Python sees."""

import json
import sys
import traceback
from pathlib import Path

import pytest
import torch
from running import check

import fxstack_capture as fx

X = torch.ones(3)
MEMBERS = (
    *("name", "obj", "errno", "strerror", "filename", "value", "code", "msg", "lineno", "text", "start"),
    *("end", "object", "reason", "pos", "doc", "path", "exceptions", "message", "__notes__", "held"),
)


class CustomError(Exception):
    def __init__(self, text, held):
        super().__init__(text)
        self.held = held


def chained():
    try:
        raise ValueError("in")
    except ValueError:
        raise KeyError("out")  # noqa: B904


def caused():
    raise TypeError("t") from OSError(2, "no")


def raising(error):
    raise error


def noted():
    error = ValueError("n")
    error.add_note("note")
    raise error


RAISERS = {
    "attribute": lambda x: x.zork,
    "name": lambda x: undefined,  # noqa: F821
    "file": lambda x: Path("/nope/q").open(),
    "key": lambda x: {}["k"],
    "stop": lambda x: raising(StopIteration(5)),
    "exit": lambda x: raising(SystemExit(3)),
    "import": lambda x: raising(ImportError("m", name="n", path="p")),
    "unicode": lambda x: b"\xff".decode(),
    "syntax": lambda x: compile("a b", "f", "exec"),
    "custom": lambda x: raising(CustomError("c", x)),
    "group": lambda x: raising(ExceptionGroup("g", [ValueError(1), KeyError("z")])),
    "tensor": lambda x: raising(ValueError(x, [x])),
    "json": lambda x: json.loads("{"),
    "chained": lambda x: chained(),
    "caused": lambda x: caused(),
    "noted": lambda x: noted(),
}


@fx.disable
def act(name, x=None):
    return RAISERS[name](x)


def plainly(value):
    return repr(value) if isinstance(value, BaseException) else value


@pytest.mark.parametrize("name", RAISERS)
def test_a_handler_sees_the_exception(name):
    def program(x):
        y = x * 2
        try:
            act(name, y)
        except BaseException as error:
            z = y + 1
            held = {key: plainly(getattr(error, key, None)) for key in MEMBERS}
            context = type(error.__context__).__name__, type(error.__cause__).__name__
            return type(error), str(error), error.args, held, context, repr(error), z

    check(program, X, graphs=2 if name != "file" else None)


def raised_again(x):
    try:
        try:
            act("custom", x)
        except CustomError as error:
            y = x + 1
            error.z = y
            raise
    except CustomError as error:
        return error.z, error.held, [e.name for e in traceback.extract_tb(error.__traceback__)], y


def another_is_raised(x):
    try:
        act("key")
    except KeyError as error:
        y = x * 3
        raise ValueError("other", y) from error


def not_caught(x):
    try:
        act("custom", x)
    except KeyError:
        x.add_(5)
    finally:
        x.add_(1)


def in_a_loop(x):
    found = []
    for i, name in enumerate(["key", "name", "attribute", "key"]):
        try:
            act(name, x)
        except (KeyError, AttributeError) as error:
            found.append((x * i, str(error)))
        except NameError:
            found.append("n")
            continue
        finally:
            x = x + 1
    return found, x


class Swallows:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.log.append((kind, str(error), trace is not None))
        return kind is KeyError


def in_a_context(x):
    log = []
    with Swallows(log):
        x = x + 1
        act("key")
    try:
        with torch.no_grad(), Swallows(log):
            act("stop")
    except StopIteration:
        x = x * 2
    return log, x, torch.is_grad_enabled()


def inlined(x):
    def inner(v):
        v = v + 1
        try:
            act("key")
        except KeyError as error:
            return v * 3, str(error)
        finally:
            v.add_(1)

    return inner(x), inner(x + 1)


def handled_one_after_another(x):
    try:
        act("key")
    except KeyError:
        y = x + 1
        first = sys.exc_info()[1].args
        try:
            act("name")
        except NameError as error:
            y = y + 2
            second = type(error.__context__)
        return first, second, sys.exc_info()[0], y


@pytest.mark.parametrize(
    "fn",
    [
        *(raised_again, another_is_raised, not_caught, in_a_loop, in_a_context, inlined),
        handled_one_after_another,
    ],
)
def test_a_program_goes_on_as_in_plain_python(fn):
    check(fn, X)
