"""Generators: protocol, delegation, cleaning up, their use by C code."""

import inspect
import itertools
import types

import pytest
from plain import check


def drive(log):
    def inner():
        try:
            received = yield 1
            log.append(("inner got", received))
            try:
                yield 2
            except KeyError as error:
                log.append(("inner caught", str(error)))
                yield "recovered"
        finally:
            log.append("inner finally")
        return "inner result"

    def outer():
        result = yield from inner()
        log.append(result)
        yield "outer"
        return "done"

    return outer


def send_and_finish():
    log = []
    gen = drive(log)()
    values = [next(gen), gen.send("hello"), next(gen)]
    try:
        next(gen)
    except StopIteration as stop:
        values.append(stop.value)
    return values, log


def throw_is_delegated():
    log = []
    gen = drive(log)()
    values = [next(gen), next(gen), gen.throw(KeyError("k")), next(gen)]
    return values, log


def throw_through():
    log = []
    gen = drive(log)()
    next(gen)
    try:
        gen.throw(OSError("o"))
    except OSError as error:
        return log, str(error), error.__context__, inspect.getgeneratorstate(gen)


def close_runs_finally():
    log = []
    gen = drive(log)()
    next(gen)
    gen.close()
    gen.close()
    return log, list(gen)


def close_ignored():
    def gen():
        while True:
            try:
                yield 1
            except GeneratorExit:
                pass

    g = gen()
    next(g)
    g.close()


def stop_iteration_inside():
    def gen():
        yield 1
        raise StopIteration(3)

    return list(gen())


def already_executing():
    def gen():
        yield next(g)

    g = gen()
    return next(g)


def send_to_unstarted():
    return (i for i in range(3)).send(1)


def throw_into_unstarted():
    def gen():
        yield 1

    g = gen()
    try:
        g.throw(ValueError("v"))
    except ValueError as error:
        return str(error), list(g)


def used_by_c_code():
    def squares(n):
        for i in range(n):
            yield i * i

    return (
        list(squares(4)),
        sum(squares(4)),
        dict(zip(squares(2), squares(3))),
        sorted(squares(3), reverse=True),
        set(squares(3)),
        max(squares(3)),
        ",".join(str(x) for x in squares(3)),
        list(map(lambda x: x + 1, squares(3))),
        list(itertools.chain.from_iterable(squares(i) for i in range(3))),
        any(x > 3 for x in squares(4)),
        [*squares(2), *squares(3)],
        tuple(squares(2)),
    )


def unpacked():
    def gen():
        yield from "abcd"

    first, *rest = gen()
    a, b, c, d = gen()
    return first, rest, a, b, c, d


def yield_from_iterators():
    def gen():
        yield from [1, 2]
        yield from (x for x in (3, 4))
        result = yield from iter(())
        yield result

    return list(gen())


def recursion():
    def walk(tree):
        if isinstance(tree, list):
            for child in tree:
                yield from walk(child)
        else:
            yield tree

    return list(walk([1, [2, [3, [4]], 5]]))


def handled_exception_is_kept_apart():
    import sys

    def gen():
        try:
            raise ValueError("inner")
        except ValueError:
            yield str(sys.exc_info()[1])
            yield str(sys.exc_info()[1])

    g = gen()
    seen = [next(g), str(sys.exc_info()[1])]
    try:
        raise KeyError("outer")
    except KeyError:
        seen += [next(g), str(sys.exc_info()[1])]
    return seen


def dropped_generators_are_closed():
    log = []

    def gen():
        try:
            yield 1
        finally:
            log.append("closed")

    for value in gen():
        break
    next(gen())
    return log


def generators_of_others_are_closed():
    log = []

    def gen(name):
        try:
            yield from (0, 1, 2)
        finally:
            log.append(name)

    def delegating(name):
        yield from gen(name)

    def found(values):
        for value in values:
            if value:
                return value
        return None

    log.append(any(v == 1 for v in gen("any")))
    log.append(any(map(bool, gen("map"))))
    log.append(next(v for v in gen("next") if v))
    log.append(next(delegating("yield from")))
    log.append(found(gen("argument")))
    for _ in (v for v in delegating("loop")):
        break
    return log


def introspection():
    def gen(a):
        b = a + 1
        yield b

    g = gen(1)
    before = (inspect.getgeneratorstate(g), g.gi_running, g.gi_yieldfrom)
    next(g)
    during = (inspect.getgeneratorstate(g), inspect.getgeneratorlocals(g), g.gi_code.co_name)
    list(g)
    after = (inspect.getgeneratorstate(g), g.gi_frame)
    return (
        before,
        during,
        after,
        isinstance(g, types.GeneratorType),
        inspect.isgenerator(g),
        g.__name__,
        g.__qualname__.split(".")[-1],
        iter(g) is g,
    )


def lazy_evaluation():
    log = []

    def source():
        for i in range(3):
            log.append(("made", i))
            yield i

    for value in (x * 2 for x in source()):
        log.append(("used", value))
    return log


def comprehensions():
    n = 3
    table = [[i * j for j in range(n)] for i in range(n)]
    pairs = {(i, j): i - j for i in range(n) if i for j in range(n) if j != i}
    letters = {c for word in ("ab", "bc") for c in word}
    functions = [lambda: i for i in range(n)]
    return table, pairs, sorted(letters), [f() for f in functions], [x for x in [1] if (y := x)], y


PROGRAMS = [value for value in list(globals().values()) if inspect.isfunction(value)]
PROGRAMS = [p for p in PROGRAMS if p.__module__ == __name__ and p.__name__ != "drive"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_in_cpython(program):
    check(program)
