# ruff: noqa: RET504
"""Modes belong to threads; entries are shared."""

import sys
import threading

import pytest

from fxstack_capture import native


@pytest.fixture(autouse=True)
def _switch_often():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def run_all(targets):
    errors = []

    def guarded(target):
        try:
            target()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_only_the_calling_thread_is_in_compile_mode(replacer):
    def f(a):
        return ("old", a)

    def g(a):
        total = 0
        for i in range(30):
            total += i
        return ("new", a)

    replacer.replace(f, g)

    def on():
        for i in range(1000):
            assert replacer(f, i) == ("new", i)

    def off():
        for i in range(1000):
            assert f(i) == ("old", i)

    run_all([on, off] * 3)


def test_many_threads_compile_and_reset_at_once(replacer):
    def f(a):
        return a

    def g(a):
        b = a
        return b

    def answer(func, code, *_):
        return native.Entry(replacer.owner, None, g.__code__)

    replacer.answer(f, answer)

    def call():
        for i in range(300):
            assert replacer(f, i) == i

    def reset():
        for _ in range(300):
            native.reset(f.__code__)

    def forget():
        for _ in range(100):
            replacer.owner.clear()

    run_all([call, call, call, reset, forget])


def test_owners_come_and_go_during_calls():
    def f(a):
        return a

    def g(a):
        b = a
        return b

    def work():
        for i in range(100):
            owner = native.Owner()
            entry = native.Entry(owner, None, g.__code__)
            native.install(f.__code__, entry)
            assert native.run_with(lambda *_: native.RUN, owner, f, (i,)) == i

    run_all([work] * 4)
    assert native.entries(f.__code__) == []


def test_new_threads_start_with_modes_off(replacer):
    modes = []

    def start():
        thread = threading.Thread(target=lambda: modes.append(native.mode()))
        thread.start()
        thread.join()

    replacer(start)
    assert modes == ["off"]
