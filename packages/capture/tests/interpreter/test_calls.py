# ruff: noqa: F821, F401, PLE0704, ICN001, PTH119, PIE800 - programs with faults
"""Calls, argument binding, closures, decorators."""

import functools

import pytest
from plain import check


def signature(a, b=2, /, c=3, *args, d, e=5, **kwargs):
    return a, b, c, args, d, e, kwargs


def plain_signature(a, b=2):
    return a, b


def only_kw(*, a, b=1):
    return a, b


def call(text):
    """A function of no arguments that evaluates ``text``."""
    namespace = {
        "f": signature,
        "g": plain_signature,
        "k": only_kw,
        "partial": functools.partial,
        "__name__": __name__,
    }
    exec(f"def program(): return {text}", namespace)
    return namespace["program"]


GOOD = [
    "f(1, d=4)",
    "f(1, 2, 3, 4, 5, d=6)",
    "f(1, d=4, z=1, y=2)",
    "f(*[1, 2], **{'d': 4})",
    "f(*(1,), *[2, 3, 4], d=1, **{'q': 2}, **{'r': 3})",
    "f(*range(5), d=1)",
    "f(1, c=7, d=4)",
    "f(1, d=4, a=3)",
    "g(1), g(b=1, a=2)",
    "k(a=1)",
    "(lambda *a, **k: (a, k))(1, x=2)",
    "(lambda x, y=[]: (y.append(x), y))(1)",
    "partial(f, 1, d=2)(3)",
]
BAD = [
    "f()",
    "f(1)",
    "f(1, 2)",
    "f(1, 2, 3)",
    "f(1, d=1, c=2, **{'c': 3})",
    "f(1, 2, 3, c=1, d=2)",
    "f(*1, d=2)",
    "f(**1)",
    "f(**{1: 2})",
    "f(*[1], *2)",
    "g(1, 2, 3)",
    "g(1, a=2)",
    "g(1, c=2)",
    "g()",
    "g(a=1, **{'a': 2})",
    "g(**{'a': 1}, **{'a': 2})",
    "k(1)",
    "k()",
    "k(1, a=2)",
    "(lambda: 0)(1)",
    "(lambda x: 0)()",
    "1()",
    "None.x()",
    "g(1)(2)",
]


@pytest.mark.parametrize("text", GOOD)
def test_arguments_are_bound(text):
    assert check(call(text))[0] == "value"


@pytest.mark.parametrize("text", BAD)
def test_errors_are_those_of_cpython(text):
    assert check(call(text))[0] == "raised"


def test_closures_share_cells():
    def program():
        def counter():
            count = 0

            def up():
                nonlocal count
                count += 1
                return count

            return up, lambda: count

        up, get = counter()
        return up(), up(), get(), counter()[1]()

    check(program)


def test_unbound_variables():
    def local():
        if False:
            x = 1
        return x

    def free():
        def inner():
            return x

        if False:
            x = 1
        return inner()

    def deleted():
        x = 1
        del x
        return x

    def deleted_cell():
        x = 1

        def inner():
            return x

        del x
        inner()

    def unknown():
        return this_name_does_not_exist

    def deleted_twice():
        x = 1
        del x
        del x

    for program in (local, free, deleted, deleted_cell, unknown, deleted_twice):
        assert check(program)[0] == "raised"


def test_decorators_defaults_and_annotations():
    def program():
        def twice(fn):
            @functools.wraps(fn)
            def wrapper(*args, **kwargs):
                return fn(*args, **kwargs) * 2

            return wrapper

        @twice
        def f(x: int, y: "str" = 3, *, z: list = 4) -> float:
            """Doc."""
            return x + y + z

        return f(1), f.__name__, f.__doc__, f.__annotations__, f.__wrapped__.__kwdefaults__

    check(program)


def test_recursion():
    def program(n):
        def fib(k):
            return k if k < 2 else fib(k - 1) + fib(k - 2)

        return fib(n)

    assert check(program, 12)[2] == "144"


def test_generator_as_arguments():
    def program():
        return max(*(i * i for i in range(4))), dict(**{k: v for k, v in zip("ab", (1, 2))})

    check(program)


def test_globals_are_written_and_deleted():
    def program():
        global _made_by_program
        _made_by_program = 1
        value = _made_by_program
        del _made_by_program
        try:
            return _made_by_program
        except NameError as error:
            return value, str(error), error.name

    check(program)


def test_frames_can_be_asked_for():
    def program(a):
        b = [a]
        c = lambda: b
        return sorted(locals()), globals() is program_globals, sorted(dir()), vars()["a"]

    program_globals = globals()
    program.__globals__["program_globals"] = program_globals
    check(program, 3)
