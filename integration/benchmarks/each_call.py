"""Programs that make new objects, functions or numbers in each call: the time of a call, fxstack / eager.

    python integration/benchmarks/each_call.py [--dry] [--markdown]

Each program would compile in each call, if nothing limited that. After 200 calls, medians of 200 more, in interleaved
rounds of ten, plain and compiled: processor time of the thread, so that other work on the machine does not count.
"Compiled" is the number of traced frames in the first 200 calls, "later" that of the timed calls; "alone": fxstack
runs the program in plain Python, because that is faster.

Programs of captum, and of jaxtyping with beartype, run if these libraries are installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import statistics
import sys
import threading
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "testing"))
sys.path.insert(0, str(Path(__file__).parents[2] / "packages/capture/tests/driver"))
import torch
from result_tables import Table
from third_party_optimizers import OPTIMIZERS
from torch import nn

import fxstack

WARM_UP, ROUNDS, CALLS = 200, 20, 10


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 64, bias=False))


def module_hooks():
    """A forward hook with a lock, as for attributions of a layer."""
    model, x = net(), torch.randn(16, 64)

    def call():
        lock, seen = threading.Lock(), {}

        def hook(_module, _inputs, output):
            with lock:
                seen["output"] = output

        handle = model[0].register_forward_hook(hook)
        try:
            return model(x), seen["output"]
        finally:
            handle.remove()

    return call, tuple


def gradients():
    """Hooks on tensors, and the gradient of an input, as for guided backpropagation."""
    model, x = net(), torch.randn(16, 64, requires_grad=True)

    def attribute():
        handles = []

        def before(_module, inputs):
            handles.append(inputs[0].register_hook(lambda grad: grad.clamp(min=0)))

        handles.append(model[1].register_forward_pre_hook(before))
        output = model(x)[:, 0].sum()
        (grad,) = torch.autograd.grad(output, x)
        for handle in handles:
            handle.remove()
        return grad

    return attribute, tuple


def closures():
    x = torch.randn(16, 64)

    def apply(fn):
        return fn(x) * 2

    def call():
        scale = 3.0
        return apply(lambda y: torch.tanh(y) * scale)

    return call, tuple


def source_text():
    """Functions from source text, as type checkers and class factories make."""
    x = torch.randn(16, 64)

    def call():
        namespace = {}
        exec("def f(x):\n    return (x * 2 + 1).tanh()\n", namespace)
        return namespace["f"](x)

    return call, tuple


def errors():
    """An exception in each second call, with checks made from source text."""
    x, numbers = torch.randn(16, 64), itertools.count()

    def call():
        namespace = {}
        try:
            if next(numbers) % 2:
                exec("def check(x):\n    raise ValueError(tuple(x.shape))\n", namespace)
                namespace["check"](x)
        except ValueError:
            return x * 2
        return torch.tanh(x) + 1

    return call, tuple


def unused_values():
    x, names = torch.randn(16, 64), itertools.count()

    def ignores(y, _name):
        return torch.tanh(y) + 1

    def step(y, name):
        return ignores(y, name)

    return step, lambda: (x, f"name{next(names)}")


def growing_list():
    """Hooks that pile up in a list which nobody empties."""
    x, hooks = torch.randn(16, 64), []

    def call():
        hooks.append(torch.tanh)
        return hooks[-1](x) * (1 / len(hooks))

    return call, tuple


def optimizer_of(kind):
    def make():
        model = net()
        stepping = kind(model.parameters())
        for p in model.parameters():
            p.grad = torch.randn_like(p)
        return stepping.step, tuple

    make.__name__ = f"optimizer {kind.__name__}"
    return make


def twenty_numbers():
    """Twenty floats and integers that change in each call, in a graph of one small operator each."""
    x, numbers = torch.randn(16), itertools.count(1)

    def call(y, values):
        for value in values:
            y = y * (1 - 0.9**value) + value / 7
        return y

    return call, lambda: (x, [n + k if k % 2 else n / (k + 1) for n in [next(numbers)] for k in range(20)])


def attribution_of(name):
    """``attribute`` of captum on a small network, as a loop over a data set calls it."""

    def make():
        from captum import attr

        model, x = net(), torch.randn(16, 64)
        layers = (model, model[0]) if name.startswith("Layer") else (model,)
        method = getattr(attr, name)(*layers)
        return lambda: method.attribute(x, target=3), tuple

    make.__name__ = f"captum {name}"
    return make


def checked_types():
    """jaxtyping with beartype: in every second call an argument has another shape than annotated."""
    from beartype import beartype
    from jaxtyping import Float, jaxtyped

    matrix = Float[torch.Tensor, "*shape"]

    @jaxtyped(typechecker=beartype)
    def scale(x: matrix, y: matrix):
        return torch.tanh(x * 2 + y)

    numbers, x = itertools.count(), torch.randn(16, 64)

    def call():
        try:
            return scale(x, x[1:] if next(numbers) % 2 else x)
        except Exception:
            return x + 1

    return call, tuple


ATTRIBUTIONS = ("IntegratedGradients", "Saliency", "GuidedBackprop", "DeepLift", "LayerGradCam")
PROGRAMS = (
    *(module_hooks, gradients, closures, source_text, errors, unused_values, growing_list, twenty_numbers),
    *map(optimizer_of, OPTIMIZERS),
    *(map(attribution_of, ATTRIBUTIONS) if importlib.util.find_spec("captum") else ()),
    *(
        (checked_types,)
        if importlib.util.find_spec("jaxtyping") and importlib.util.find_spec("beartype")
        else ()
    ),
)


def per_call(fn, arguments, calls: int) -> float:
    """Microseconds of a call."""
    given = [arguments() for _ in range(calls)]
    start = time.thread_time_ns()
    for args in given:
        fn(*args)
    return (time.thread_time_ns() - start) / calls / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="few calls of each program")
    options = parser.parse_args()
    warm_up, rounds = (3, 1) if options.dry else (WARM_UP, ROUNDS)
    warnings.simplefilter("ignore")
    table = Table("program", "eager us", "fxstack us", "fxstack / eager", "compiled", "later", "alone")
    for make in PROGRAMS:
        eager, arguments = make()
        compiled = fxstack.compile(make()[0])
        for _ in range(warm_up):
            eager(*arguments())
            compiled(*arguments())
        tally = compiled.callback.__self__.tally
        traced = tally.traced
        times = [[per_call(fn, arguments, CALLS) for fn in (eager, compiled)] for _ in range(rounds)]
        plain, ours = (statistics.median(column) for column in zip(*times, strict=True))
        cells = f"{plain:.1f}", f"{ours:.1f}", f"{ours / plain:.2f}", traced, tally.traced - traced
        cells += ("yes" if compiled.plain_calls else "",)
        table.row(make.__name__, *cells)


if __name__ == "__main__":
    main()
