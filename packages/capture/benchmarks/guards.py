"""What the frame hook and the guards cost, in nanoseconds.

    python packages/capture/benchmarks/guards.py [--markdown]

Processor time of the thread, minimum of several rounds. Calls are timed in a loop of plain Python and the empty
loop is subtracted; guard checks are timed natively.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import cache
from itertools import repeat
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "testing"))

import torch
from result_tables import Table

from fxstack_capture import native
from fxstack_capture.guards.records import (
    AllDistinct,
    ClassUnchanged,
    Equals,
    Guard,
    IdentityIs,
    KeysAre,
    NoOverlap,
    TorchStateIs,
    TypeIs,
    tensor_facts,
)
from fxstack_capture.guards.tensor_build import TENSOR_CHECKS
from fxstack_capture.guards.tensor_reading import prepare_tensors
from fxstack_capture.guards.torch_state import snapshot
from fxstack_capture.guards.tree import compile_guards
from fxstack_capture.sources import InstanceAttr, Item, Key, Local, pinned

ROUNDS, CALLS = 9, 50_000


def f(x):
    return x


def g(x):
    return x


def loop(fn, x):
    iterations = repeat(None, CALLS)
    start = time.thread_time_ns()
    for _ in iterations:
        fn(x)
    return (time.thread_time_ns() - start) / CALLS


def empty(_fn, _x):
    iterations = repeat(None, CALLS)
    start = time.thread_time_ns()
    for _ in iterations:
        pass
    return (time.thread_time_ns() - start) / CALLS


def best(measure, *args):
    return min(measure(*args) for _ in range(ROUNDS))


@cache
def table():
    return Table("what", "ns")


def show(label, ns):
    table().row(label, f"{ns:.1f}")


def section(title):
    table().row(title, "")


def call_times():
    base = best(empty, f, 1)
    plain = best(loop, f, 1) - base
    owner = native.Owner()
    skip = lambda *_: native.SKIP  # noqa: E731
    run = lambda *_: native.RUN  # noqa: E731
    native.skip(loop.__code__, owner)

    def hooked(x=1):
        return best(lambda: native.run_with(run, owner, loop, (f, x))) - base

    section("calls of f(x): return x")
    show("plain", plain)
    native.skip(f.__code__, owner)
    show("hook on, code skipped", hooked())
    native.reset(f.__code__)
    native.install(f.__code__, native.Entry(owner, None, g.__code__))
    show("hook on, hit, no guards", hooked())
    native.reset(f.__code__)
    tree = compile_guards([Guard(Local("x"), TypeIs(int))], f.__code__)
    native.install(f.__code__, native.Entry(owner, tree, g.__code__))
    show("hook on, hit, type guard", hooked())
    native.reset(f.__code__)
    t = torch.zeros(8, 8)
    tree = compile_guards([Guard(Local("x"), tensor_facts(t))], f.__code__)
    native.install(f.__code__, native.Entry(owner, tree, g.__code__))
    show("hook on, hit, tensor guard", hooked(t))
    optimized = native.Optimized(f, skip, owner)
    show("Optimized(f)(tensor), the whole call, hit", best(loop, optimized, t) - base)
    both = [Guard(Local("x"), tensor_facts(t)), Guard(Local("x"), TorchStateIs(snapshot()))]
    native.reset(f.__code__)
    native.install(f.__code__, native.Entry(owner, compile_guards(both, f.__code__), g.__code__))
    show("   the same with torch's state guarded", best(loop, optimized, t) - base)
    disabled = native.Disabled(len)
    show("Disabled(len)(()) less len(())", best(loop, disabled, ()) - best(loop, len, ()))
    native.reset(f.__code__)


def check_time(guards, *arguments):
    tree = compile_guards(guards, f.__code__)
    return min(native.time_check(tree, f, arguments, 20_000) for _ in range(ROUNDS))


class Thing:
    def method(self): ...


def slope(make, small, large):
    """ns for each item more: the difference between two sizes."""
    return (check_time(*make(large)) - check_time(*make(small))) / (large - small)


X = Local("x")


def tensors(n):
    values = [torch.zeros(8, 4) for _ in range(n)]
    return [Guard(Item(X, i), tensor_facts(t)) for i, t in enumerate(values)], values


def dynamic_tensors(n):
    guards, values = tensors(n)
    return [Guard(x.source, replace(x.check, sizes=(None, 4), strides=(4, 1))) for x in guards], values


def parameters(n):
    values = [torch.nn.Parameter(torch.zeros(8, 4)) for _ in range(n)]
    return [Guard(Item(X, i), replace(tensor_facts(t), is_leaf=True)) for i, t in enumerate(values)], values


def dict_items(n):
    return [Guard(Key(X, f"k{i}"), TypeIs(int)) for i in range(n)], {f"k{i}": i for i in range(n)}


def equals(n):
    return [Guard(Item(X, i), Equals(i)) for i in range(n)], list(range(n))


def attributes(n):
    thing = Thing()
    for i in range(n):
        setattr(thing, f"a{i}", i)
    return [Guard(InstanceAttr(X, f"a{i}"), TypeIs(int)) for i in range(n)], thing


def identities(n):
    values = [Thing() for _ in range(n)]
    return [Guard(Item(X, i), IdentityIs(v, id(v))) for i, v in enumerate(values)], values


def keys(n):
    return [Guard(X, KeysAre(tuple(f"k{i}" for i in range(n))))], {f"k{i}": i for i in range(n)}


def classes(n):
    made = [type(f"C{i}", (Thing,), {}) for i in range(n)]
    return [Guard(pinned(c, "C"), ClassUnchanged(("method",), (Thing.method,))) for c in made], made


def distinct(n):
    return [Guard(Item(X, 0), AllDistinct(tuple(Item(X, i) for i in range(1, n))))], [
        object() for _ in range(n)
    ]


def storages(n):
    return [Guard(Item(X, 0), NoOverlap(tuple(Item(X, i) for i in range(1, n))))], [
        torch.zeros(1) for _ in range(n)
    ]


PER_ITEM = {
    "tensor (all facts)": tensors,
    "tensor, a dynamic size": dynamic_tensors,
    "parameter, leafness too": parameters,
    "dict item and its type": dict_items,
    "list item and its value (int)": equals,
    "instance attribute and its type": attributes,
    "list item and its identity": identities,
    "key of a dict, in order": keys,
    "class, one attribute": classes,
    "object that must differ from the others": distinct,
    "tensor that must not share storage": storages,
}


def check_times():
    show("no guards", check_time([], 1))
    show("type of one argument", check_time([Guard(X, TypeIs(int))], 1))
    t = torch.zeros(8, 4)
    show("one tensor", check_time([Guard(X, tensor_facts(t))], t))
    show("torch's state", check_time([Guard(X, TorchStateIs(snapshot()))], t))
    for label, make in PER_ITEM.items():
        show("each " + label, slope(make, 20, 220))


def main():
    TENSOR_CHECKS.wait()
    call_times()
    section(
        "checks, compiled tensor facts" if TENSOR_CHECKS.compiled else f"checks ({TENSOR_CHECKS.why_not})"
    )
    check_times()
    prepare_tensors()
    t = torch.zeros(8, 4)
    section("header-free tensor facts")
    show("one tensor", check_time([Guard(X, tensor_facts(t))], t))
    show("torch's state", check_time([Guard(X, TorchStateIs(snapshot()))], t))


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = []
        ROUNDS, CALLS = 1, 100
    main()
