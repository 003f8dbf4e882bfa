"""What the wrapper costs beside the compiled code: ours and the incumbent's, in the same run.

    python sweeps/overhead.py

The compiled functions return at once what they made before, so that nothing but the wrappers is timed.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from compare import as_graph
from helpers import save_everything
from torch._functorch.aot_autograd import aot_module_simplified

from fxstack_functionalize import aot


def microseconds(function, number=2000, repeats=15):
    """The best of several runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(number):
            function()
        best = min(best, (time.perf_counter() - start) / number)
    return best * 1e6


def instant(module, example_inputs):
    """A compiler whose code only makes the first result anew."""
    kept = []

    def call(*args):
        if not kept:
            kept.extend(module.forward(*args))
        return (torch.empty(4), *kept[1:])

    return call


def boxed_instant(module, example_inputs):
    call = instant(module, example_inputs)
    boxed = lambda args: call(*args)
    boxed._boxed_call = True
    return boxed


def product(*values):
    result = values[0]
    for value in values[1:]:
        result = result * value
    return (result,)


def increment(x):
    return (x + 1,)


def measure(name, fn, inputs):
    graph = as_graph(fn, len(inputs))
    ours = aot(graph, inputs, fw_compiler=instant, partitioner=save_everything)
    theirs = aot_module_simplified(
        graph, inputs, fw_compiler=boxed_instant, bw_compiler=boxed_instant
    )
    ours(*inputs), theirs(*inputs)
    results = (torch.empty(4),) * 20
    floor = microseconds(lambda: (torch.empty(4), *results[1:]))
    times = [microseconds(lambda f=f: f(*inputs)) - floor for f in (ours, theirs)]
    print(f"{name}: ours {times[0]:.1f} us, the incumbent's AOT layer {times[1]:.1f} us")


if __name__ == "__main__":
    measure("inference, 1 input", increment, [torch.randn(4)])
    measure("training forward, 1 input", increment, [torch.randn(4, requires_grad=True)])
    measure(
        "training forward, 20 inputs",
        product,
        [torch.randn(4, requires_grad=True) for _ in range(20)],
    )
