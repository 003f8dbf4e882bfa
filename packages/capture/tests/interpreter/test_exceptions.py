# ruff: noqa: F821, F401, PLE0704, ICN001, PTH119, PIE800 - programs with faults
"""Exceptions: raising, catching, chaining, groups, ``finally`` and ``with``."""

import contextlib
import sys
import traceback

import pytest
from plain import check, interpreted


class Custom(Exception):
    def __init__(self, a, b=2):
        super().__init__(a, b)
        self.a = a


class Manager:
    def __init__(self, log, swallow=False, fail=""):
        self.log, self.swallow, self.fail = log, swallow, fail

    def __enter__(self):
        self.log.append("enter")
        if self.fail == "enter":
            raise OSError("enter")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append((kind and kind.__name__, str(error)))
        if self.fail == "exit":
            raise OSError("exit")
        return self.swallow


def implicit_context():
    try:
        1 / 0
    except ZeroDivisionError:
        raise KeyError("k")


def explicit_cause():
    try:
        {}["x"]
    except KeyError as error:
        raise ValueError("v") from error


def suppressed():
    try:
        1 / 0
    except ZeroDivisionError:
        raise KeyError("k") from None


def nested_context():
    try:
        try:
            raise ValueError(1)
        except ValueError:
            raise TypeError(2)
    except TypeError:
        raise KeyError(3)


def context_of_callee():
    def fail():
        raise KeyError("in callee")

    try:
        raise ValueError(1)
    except ValueError:
        fail()


def context_after_handler():
    try:
        raise ValueError(1)
    except ValueError:
        pass
    raise KeyError(2)


def reraise():
    try:
        raise Custom(1)
    except Custom as error:
        error.seen = True
        raise


def reraise_outside():
    raise


def raise_in_finally():
    try:
        raise ValueError(1)
    finally:
        raise KeyError(2)


def return_in_finally():
    try:
        raise ValueError(1)
    finally:
        return 5


def finally_order():
    log = []
    try:
        try:
            log.append(1)
            raise Custom("x")
        except Custom as error:
            log.append(error.a)
        else:
            log.append("else")
        finally:
            log.append("finally")
    finally:
        log.append("outer")
    return log


def else_clause():
    log = []
    for i in range(3):
        try:
            if i == 1:
                continue
            log.append(i)
        except Exception:
            log.append("never")
        else:
            log.append("else")
        finally:
            log.append("f")
    else:
        log.append("loop else")
    return log


def name_is_deleted():
    try:
        raise ValueError
    except ValueError as error:
        pass
    return error


def raise_class_instance_and_junk():
    found = []
    for what in (ValueError, ValueError(3), 5, Custom):
        try:
            raise what
        except BaseException as error:
            found.append((type(error), str(error)))
    return found


def bad_cause():
    raise ValueError from 5


def bad_match():
    try:
        raise ValueError
    except 5:
        pass


def match_tuples():
    found = []
    for error in (KeyError(1), ZeroDivisionError(), OSError(2)):
        try:
            raise error
        except (KeyError, ZeroDivisionError) as caught:
            found.append(type(caught))
        except OSError:
            found.append("os")
    return found


def exc_info():
    def seen():
        return sys.exc_info()[0], sys.exception()

    before = seen()
    try:
        raise ValueError("x")
    except ValueError:
        inside = [str(x) for x in seen()]
        try:
            raise KeyError("y")
        except KeyError:
            nested = [str(x) for x in seen()]
        again = [str(x) for x in seen()]
    return before, inside, nested, again, seen()


def assertion():
    assert 1 == 2, "message"


def group_split():
    log = []
    try:
        raise ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2), ValueError(3)])])
    except* ValueError as group:
        log.append(repr(group))
    except* KeyError as group:
        log.append(repr(group))
    return log


def group_rest():
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2), OSError(3)])
    except* ValueError:
        raise TypeError("new")
    except* KeyError:
        pass


def group_reraise():
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError:
        raise
    except* KeyError:
        raise


def group_naked():
    try:
        raise ValueError(1)
    except* ValueError as group:
        return_value = repr(group)
    return return_value


def group_bad():
    try:
        raise ValueError(1)
    except* ExceptionGroup:
        pass


PROGRAMS = [
    implicit_context,
    explicit_cause,
    suppressed,
    nested_context,
    context_of_callee,
    context_after_handler,
    reraise,
    reraise_outside,
    raise_in_finally,
    return_in_finally,
    finally_order,
    else_clause,
    name_is_deleted,
    raise_class_instance_and_junk,
    bad_cause,
    bad_match,
    match_tuples,
    exc_info,
    assertion,
    group_split,
    group_rest,
    group_reraise,
    group_naked,
    group_bad,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_in_cpython(program):
    check(program)


@pytest.mark.parametrize("swallow", [False, True])
@pytest.mark.parametrize("fail", ["", "enter", "exit"])
@pytest.mark.parametrize("error", [None, ValueError("body")])
def test_with(swallow, fail, error):
    log = []

    def program():
        log.clear()
        try:
            with Manager(log, swallow, fail) as a, Manager(log) as b:
                log.append(a is not b)
                if error is not None:
                    raise error
            log.append("after")
        except Exception as caught:
            log.append((repr(caught), repr(caught.__context__)))
        return [str(item) for item in log]

    check(program)


def test_with_leaves_by_return_break_and_continue():
    def program():
        log = []
        for i in range(4):
            with Manager(log):
                if i == 1:
                    continue
                if i == 2:
                    break
                log.append(i)

        def early():
            with Manager(log):
                return "early"

        return early(), log

    check(program)


@pytest.mark.parametrize("manager", [5, object(), type("Half", (), {"__enter__": lambda self: 1})()])
def test_with_something_else(manager):
    def program():
        with manager:
            pass

    assert check(program)[1] == "TypeError"


def test_contextlib():
    def program():
        log = []

        @contextlib.contextmanager
        def section(name, swallow=()):
            log.append("enter " + name)
            try:
                yield name
            except swallow as error:
                log.append(repr(error))
            finally:
                log.append("leave " + name)

        with section("a") as a, contextlib.suppress(KeyError), contextlib.ExitStack() as stack:
            stack.enter_context(section("b"))
            stack.callback(log.append, "callback")
            with section("c", ValueError):
                raise ValueError(a)
            {}["missing"]
        try:
            with section("d"):
                raise OSError("d")
        except OSError as error:
            log.append((str(error), error.__context__))
        return log

    check(program)


def test_tracebacks_name_the_lines_of_the_program():
    def inner(x):
        return 1 / x

    def program():
        try:
            inner(0)
        except ZeroDivisionError as error:
            return [(e.name, e.lineno) for e in traceback.extract_tb(error.__traceback__)]

    assert interpreted(program) == program()


def test_traceback_given_and_seen_by_exit():
    def program():
        seen = []

        class M:
            def __enter__(self):
                return None

            def __exit__(self, kind, error, trace):
                seen.append(len(traceback.extract_tb(trace)))
                seen.append(trace is error.__traceback__)
                return True

        def deep(n):
            if n:
                deep(n - 1)
            raise ValueError

        with M():
            deep(3)
        try:
            raise KeyError
        except KeyError as first:
            trace = first.__traceback__
        with M():
            raise OSError().with_traceback(trace)
        return seen

    check(program)


def test_no_references_are_kept():
    import weakref

    class Thing:
        pass

    def program():
        thing = Thing()
        seen = weakref.ref(thing)

        def fail(it):
            raise ValueError

        try:
            fail(thing)
        except ValueError:
            pass
        del thing
        return seen() is None

    check(program)
