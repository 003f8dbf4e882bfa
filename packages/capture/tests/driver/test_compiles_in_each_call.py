"""Programs that make new objects in each call: their frames compile a few times, and then stay in plain Python."""

import functools
import gc
import threading
import warnings

import pytest
import torch
from counting import Counting
from torch import nn

import fxstack_capture as fx
from fxstack_capture.driver.errors import RecompileLimitError, TracingWarning
from fxstack_capture.driver.profitability import Trial

X = torch.arange(6.0).reshape(2, 3)
NET = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
CALLS = 40


class Scale:
    def __init__(self, by):
        self.by = by

    def apply(self, x):
        return x * self.by


def closure(x, lock):
    def scaled(y):
        return y * 2

    return apply(x, scaled), lock


def apply(x, fn):
    return fn(x) + 1


def partial(x, _lock):
    return apply(x, functools.partial(torch.add, other=x))


def bound_method(x, _lock):
    return apply(x, Scale(3.0).apply)


def holds_a_lock(x, lock):
    y = x.sin()
    with lock:
        y = y + 1
    return y * 2


def passes_a_lock(x, lock):
    return x + 1, {"lock": lock}


REUSED = (closure, partial, bound_method, holds_a_lock, passes_a_lock)


@pytest.mark.parametrize("program", REUSED)
def test_entries_outlive_the_objects_of_a_call(program):
    backend = Counting()
    compiled = fx.optimize(backend)(program)
    made = []
    for _ in range(6):
        lock = threading.Lock()
        assert str(compiled(X, lock)) == str(program(X, lock))
        made.append(len(backend.graphs))
    assert made[-1] == made[2]


def hooked(x):
    """As a library of attributions does: a hook with a lock for each call, whose number differs."""
    lock, seen = threading.Lock(), {}

    def hook(_module, _inputs, output):
        with lock:
            seen["output"] = output
        return output * 2

    handle = NET[0].register_forward_hook(hook)
    try:
        return runs(x), seen["output"].sum()
    finally:
        handle.remove()


def runs(x):
    fx.graph_break()
    return NET(x)


def hooks_that_pile_up(x, hooks=[]):  # noqa: B006
    hooks.append(lambda y: y * 2)
    for hook in hooks[-1:]:
        x = hook(x)
    return x * len(hooks)


def from_source(x):
    namespace = {}
    exec("def f(x):\n    return x * 2 + 1\n", namespace)  # noqa: S102
    return namespace["f"](x)


def named_class(x):
    cls = type("Made", (Scale,), {})
    fx.graph_break()
    return cls(2.0).apply(x)


def fails_half_of_the_time(x, calls=[0]):  # noqa: B006
    calls[0] += 1
    namespace = {}
    try:
        if calls[0] % 2:
            exec("def f(x):\n    raise ValueError(x)\n", namespace)  # noqa: S102
            namespace["f"](x)
    except ValueError:
        return x * 3
    return x.sin()


STORMS = (hooked, hooks_that_pile_up, from_source, named_class, fails_half_of_the_time)


def run(compiled, calls):
    """Return the warnings of ``calls`` calls."""
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        for _ in range(calls):
            compiled(X)
    return [str(w.message) for w in caught if issubclass(w.category, TracingWarning)]


@pytest.fixture
def equal_times(monkeypatch):
    """Timed calls take equally long, compiled and plain: what the machine measures decides nothing."""
    end = Trial.end
    monkeypatch.setattr(
        Trial, "end", lambda trial, opt, plain, _time, result: end(trial, opt, plain, 10, result)
    )


@pytest.mark.usefixtures("equal_times")
@pytest.mark.parametrize("program", STORMS)
def test_compiling_ends(program):
    backend = Counting()
    compiled = fx.optimize(backend, options=fx.CaptureOptions(leave_unprofitable=True))(program)
    texts = run(compiled, 2 * CALLS)
    tally = compiled.callback.__self__.tally
    traced, graphs = tally.traced, len(backend.graphs)
    assert run(compiled, CALLS) == []
    assert (tally.traced, len(backend.graphs)) == (traced, graphs)
    assert len(texts) == len(set(texts)) <= 4


def test_equal_code_warns_once():
    compiled = fx.optimize()(from_source)
    (about_the_caller, about_the_code) = run(compiled, 2 * CALLS)
    assert (
        "from_source" in about_the_caller
        and "objects or functions that each call makes anew" in about_the_code
    )
    assert about_the_code.startswith("f (<string>:1) was compiled 8 times (recompile_limit)")


def test_uses_pay_for_compilations():
    """A new object for 200 calls each is worth a compilation."""
    backend = Counting()
    compiled = fx.optimize(backend)(lambda x, t: x * 2 if t else x)
    gc.freeze()  # a collection looks at the classes of this test alone
    for number in range(12):
        marker = type(f"Marker{number}", (), {})
        for _ in range(200):
            compiled(X, marker)
        del marker
        gc.collect()  # a class is part of a cycle; while it lives, its entry counts against recompile_limit
    gc.unfreeze()
    assert len(backend.graphs) == 12


def test_the_limit_may_raise():
    compiled = fx.optimize(options=fx.CaptureOptions(fail_on_recompile_limit=True))(from_source)
    with pytest.raises(RecompileLimitError, match=r"\(recompile_limit\)"):
        run(compiled, CALLS)


def test_whole_graphs_compile_on():
    backend = Counting()
    compiled = fx.optimize(backend, fullgraph=True)(lambda x, f: f(x) + 1)
    for _ in range(12):
        namespace = {}
        exec("f = lambda x: x * 2", namespace)  # noqa: S102
        compiled(X, namespace["f"])
    assert len(backend.graphs) == 12
