"""Python's library in compiled code: what it makes may leave, and calls back into what the program gave it."""

import functools
import inspect
import io
import itertools
import math
import operator
import os
import signal
import sys
import threading
import types
import weakref

import pytest
import torch
from beside import breaks_beside_plain

from fxstack_capture import disable, graph_break, native, optimize
from fxstack_capture.calls.rules import RULES

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
OUT = io.StringIO()


def iterators_over_callables(x):
    squares = map(abs, [1, -2])
    kept = filter(operator.itemgetter(0), [(1,), (0,)])
    products = itertools.accumulate([x, x], operator.mul)
    graph_break()
    return list(squares), list(kept), list(products), list(map(torch.sin, [x]))


def test_iterators_over_builtin_callables_leave_with_those_callables():
    breaks_beside_plain(iterators_over_callables, lambda: (torch.ones(2),))


def returned_map(x):
    return map(torch.sin, [x, x + 1])


def test_a_map_that_is_returned_calls_what_the_program_gave_it():
    breaks_beside_plain(lambda x: (x + 1, list(returned_map(x))), lambda: (torch.ones(2),))


class Named:
    def __fspath__(self):
        return "folder"


def paths(x):
    joined = os.path.join(Named(), "a.txt"), os.path.normpath("a/../b")  # noqa: PTH118
    try:
        os.fspath(3)
    except TypeError as error:
        return x + 1, joined, str(error)


def test_functions_of_paths_are_part_of_the_graph():
    assert breaks_beside_plain(paths, lambda: (torch.ones(2),)) == []


def read_lines(x, path):
    y = x + 1
    with path.open() as file:
        return y, [line.strip() for line in file], file.closed


def test_files_are_read_in_plain_python(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("a\nb\n")
    assert breaks_beside_plain(read_lines, lambda: (torch.ones(2), path))


def test_a_partial_without_a_name_is_called_behind_a_break():
    called = functools.partial(disable(lambda a, b: a + b), 3)
    assert breaks_beside_plain(lambda x: (x + 1, called(4)), lambda: (torch.ones(2),))


def compared_by_function(x):
    items = [3, 1]
    items.sort(key=functools.cmp_to_key(lambda a, b: (OUT.write("q"), a - b)[1]))
    return x + items[0]


def with_lock(x):
    lock = threading.Lock()
    graph_break()
    with lock:
        return x + 1


@pytest.mark.parametrize("fn", [compared_by_function, with_lock])
def test_c_objects_that_cannot_be_made_again_are_made_for_real(fn):
    breaks_beside_plain(fn, lambda: (torch.ones(2),))


class Thing:
    pass


def through_proxy(x):
    thing = Thing()
    proxy = weakref.proxy(thing)
    proxy.value = 3
    graph_break()
    y = x + proxy.value
    thing = None
    try:
        return str(proxy), y
    except ReferenceError as error:
        return error, y


def thrown_into(x):
    def numbers():
        try:
            yield x
        except ValueError:
            OUT.write("c")
            yield x * 2

    it = numbers()
    first = next(it)
    second = it.throw(ValueError())
    close = it.close
    OUT.write("d")
    return first + second, close()


@pytest.mark.parametrize("fn", [through_proxy, thrown_into])
def test_references_and_methods_of_generators_survive_a_break(fn):
    breaks_beside_plain(fn, lambda: (torch.ones(2),))


def attributes_of_c_objects(x, part):
    part.tag = 4
    try:
        part.func = 3
    except AttributeError as error:
        return x + 1, str(error)


def test_attributes_stored_on_c_objects_from_outside_are_there_afterwards():
    breaks_beside_plain(attributes_of_c_objects, lambda: (torch.ones(2), functools.partial(int)))


def busy(x):
    done.append("begun")
    try:
        y = x + math.hypot(3, 4)
    except BaseException:
        done.append("caught")
        raise
    done.append("ended")
    return y


done = []


def test_control_c_stops_the_tracer_and_leaves_the_program_untouched(monkeypatch):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background

    def interrupt(trace, fn, args, kwargs):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setitem(RULES.objects, id(math.hypot), interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            optimize()(busy)(torch.ones(2))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert done == []


def raises_interrupt(x, log):
    try:
        log.append(x + 1)
        raise KeyboardInterrupt("mine")
    except KeyboardInterrupt as error:
        return x + 2, error


def test_a_program_may_raise_that_itself():
    assert breaks_beside_plain(raises_interrupt, lambda: (torch.ones(2), [])) == []


def leaves_generators_open(x, log):
    def numbers(name):
        try:
            yield x + 1
        finally:
            log.append(name)

    first, second = numbers("first"), numbers("second")
    return next(first) + next(second), log


def breaks_while_closing(x, log):
    def numbers():
        try:
            yield x + 1
        finally:
            graph_break()
            log.append("closed")

    it = numbers()
    return next(it), log


def test_generators_that_die_with_the_frame_are_closed():
    assert breaks_beside_plain(leaves_generators_open, lambda: (torch.ones(2), [])) == []
    breaks_beside_plain(breaks_while_closing, lambda: (torch.ones(2), []))


class Taking:
    def __init__(self, a, *rest, c=10, **more):
        pass


def test_the_signature_of_a_class_is_that_of_its_init():
    def program(x):
        found = inspect.signature(Taking)
        return found.bind(1, 2, d=3).arguments, str(found), x + 1

    assert breaks_beside_plain(program, lambda: (torch.ones(2),)) == []


def test_programs_ask_for_accelerators():
    def program(x):
        found = torch.accelerator.current_accelerator(), torch.accelerator.is_available()
        return found, torch.accelerator.device_count(), x + 1

    assert breaks_beside_plain(program, lambda: (torch.ones(2),)) == []


def _asked(a, b: int = 2, *c, d, e=4):
    pass


def of_functions_attributes(x):
    found = []
    for name in ("__text_signature__", "__mro__", "__class__", "__get__", "missing", "__sizeof__"):
        try:
            found.append(type(getattr(_asked, name)))
        except AttributeError as error:
            found.append((str(error), error.name, error.obj is _asked))
    return x * 2, found, inspect.getfullargspec(_asked)


NAMES = types.SimpleNamespace(a=1, b=[1])


def of_namespaces(x):
    NAMES.c = 3
    texts = repr(NAMES), f"{[NAMES, types.SimpleNamespace(n=NAMES)]}"
    del NAMES.c
    return x * 2, texts, types.SimpleNamespace(a=1, b=[1]) == NAMES


def of_names_that_look_alike(x, x_0):
    return x[0] + x_0


@pytest.mark.parametrize(
    ("fn", "make"),
    [
        (of_functions_attributes, lambda: (torch.ones(2),)),
        (of_namespaces, lambda: (torch.ones(2),)),
        (of_names_that_look_alike, lambda: ([torch.ones(2)], torch.ones(2))),
    ],
)
def test_is_in_the_graph_and_exact(fn, make):
    assert breaks_beside_plain(fn, make) == []


def what_python_this_is(x):
    new = sys.version_info >= (3, 8) and sys.version_info[:2] != (2, 7)
    return x + new, sys.version_info.minor, sys.flags.optimize, sys.float_info.max, sys.version_info


def test_programs_ask_which_python_runs():
    assert breaks_beside_plain(what_python_this_is, lambda: (torch.ones(2),)) == []
