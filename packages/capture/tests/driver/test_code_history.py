"""What is remembered of code objects goes with them: their ids are used again."""

import builtins
import functools
import gc
import types

import torch
from running import check

import fxstack_capture

PLAIN = "def f(x):\n    return x * {0} + {0}\n"
BREAKING = "import sys\ndef f(x):\n    y = x * {0}\n    print(end='', file=sys.stderr)\n    return y + {0}\n"


@fxstack_capture.skip
def call(f, x):
    """Runs in plain Python: what it calls is a frame of its own."""
    return f(x)


def short_lived(source, rounds=60):
    """Functions that are made, run under one compiler and dropped: how many ids they had, how many it remembers."""
    run = fxstack_capture.optimize()(call)
    compiler = run.callback.__self__
    ids = set()
    for number in range(rounds):
        namespace = {}
        exec(source.format(number), namespace)
        f = namespace.pop("f")
        assert torch.equal(run(f, torch.ones(3)), torch.full((3,), 2.0 * number))
        ids.add(id(f.__code__))
        del f
        gc.collect()
    return len(ids), len(compiler.states)


def test_code_objects_go_and_their_ids_come_back():
    ids, remembered = short_lived(PLAIN)
    assert ids < 60
    assert remembered < 5


def test_functions_with_breaks_are_not_mixed_up():
    short_lived(BREAKING)


def test_what_was_seen_of_shapes_stays():
    run = fxstack_capture.optimize()(call)
    namespace = {}
    exec("def f(x):\n    return x + 1\n", namespace)
    for size in (3, 4):
        run(namespace["f"], torch.ones(size))
    seen = fxstack_capture.profile_of(run)
    namespace.clear()
    gc.collect()
    assert len(seen) >= 1
    assert fxstack_capture.profile_of(run) == seen


def replaces_a_builtin(x):
    kept = builtins.len
    builtins.len = functools.lru_cache(4)(len)
    try:
        print("break")
        seen = [len("abc"[:i]) for i in (0, 1, 1, 3)]
        print(builtins.len is kept)
        return seen, x + 1
    finally:
        builtins.len = kept


def test_programs_that_replace_what_the_compiler_calls():
    kept = builtins.len
    check(replaces_a_builtin, torch.ones(3))
    assert builtins.len is kept


def scaled(namespace, text="def scaled(x):\n    return x * factor\n"):
    """Functions of one code object with globals of their own."""
    code = compile(text, "<scaled>", "exec").co_consts[0]
    return [types.FunctionType(code, {"factor": factor, **namespace}) for factor in (1, 2)]


def test_functions_of_one_code_object_have_their_own_globals():
    def calls(fn, x):
        fxstack_capture.graph_break()
        return fn(x)

    broken = scaled({"fx": fxstack_capture}, "def scaled(x):\n    fx.graph_break()\n    return x * factor\n")
    run = fxstack_capture.optimize()(calls)
    for first, second in (scaled({}), broken):
        for fn, factor in ((first, 1), (second, 2), (first, 1)):
            torch.testing.assert_close(run(fn, torch.ones(3)), torch.full((3,), float(factor)))
