"""Deep recursion: as deep as plain Python, and RecursionError rather than a crash."""

import subprocess
import sys
import threading

import pytest

from fxstack_capture import native


def rec(n):
    return 0 if n == 0 else 1 + rec(n - 1)


def test_fibonacci(replacer):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def fib2(n):
        if n < 2:
            return n
        a = fib(n - 1)
        b = fib(n - 2)
        return a + b

    replacer.replace(fib, fib2)
    assert replacer(fib, 15) == 610


ALONE = """
import sys, threading, types
package = types.ModuleType("fxstack_capture")
package.__path__ = [{package!r}]
sys.modules["fxstack_capture"] = package  # without torch
from fxstack_capture import native
def rec(n): return 0 if n == 0 else 1 + rec(n - 1)
def replaced(n):
    if n == 0: return 0
    k = rec(n - 1)
    return k + 1
owner = native.Owner()
def callback(func, code, *_):
    return native.Entry(owner, None, replaced.__code__) if func is rec else native.SKIP
"""

# Programs of their own: an evaluator that torch has left installed halves the depth of plain Python on 3.12.
DEPTHS = """
def deepest(call, low=10, high=3000):
    while low < high - 5:
        middle = (low + high) // 2
        try: call(middle)
        except RecursionError: high = middle
        else: low = middle
    return low
def compiled(n): return native.run_with(lambda *_: native.SKIP if skips else callback(*_), owner, rec, (n,))
plain = deepest(rec)
skips = True
skipped = deepest(compiled)
native.reset(rec.__code__)
skips = False
hit = deepest(compiled)
assert abs(skipped - plain) < 20 and abs(hit - plain) < 20, (plain, skipped, hit)
"""
DEEP = """
sys.setrecursionlimit(10**6)
outcome = []
def run():
    try: outcome.append(native.run_with(callback, owner, rec, ({depth},)))
    except RecursionError as error: outcome.append(str(error))
threading.stack_size(4 << 20)
thread = threading.Thread(target=run); thread.start(); thread.join()
print(outcome[0])
"""


def run_alone(program):
    package = next(iter(sys.modules["fxstack_capture"].__path__))
    program = ALONE.format(package=package) + program
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


def test_as_deep_as_plain_python():
    run_alone(DEPTHS)


@pytest.mark.parametrize(
    ("depth", "expected"), [(3000, "3000"), (200_000, "maximum recursion depth exceeded")]
)
def test_the_end_of_the_c_stack_is_an_error(depth, expected):
    assert run_alone(DEEP.format(depth=depth)).startswith(expected)


def test_recursion_through_c_code(replacer):
    class Nested:
        def __init__(self, depth):
            self.depth = depth

        def __repr__(self):
            return repr(Nested(self.depth - 1)) if self.depth else "end"

    assert replacer(repr, Nested(100)) == "end"
    with pytest.raises(RecursionError):
        replacer(repr, Nested(10**6))


def test_intercepted_recursion():
    def deep(n):
        return deep(n - 1) if n else "end"

    def callback(func, args, kwargs):
        (n,) = args
        return native.intercept(callback, func, (n - 1,)) if n else "end"

    assert native.intercept(callback, deep, (50,)) == "end"
    with pytest.raises(RecursionError):
        native.intercept(callback, deep, (10**6,))


def test_recursion_error_in_a_thread(replacer):
    caught = []

    def target():
        try:
            replacer(rec, 10**6)
        except RecursionError as error:
            caught.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    assert len(caught) == 1
    native.reset(rec.__code__)
