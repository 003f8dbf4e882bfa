"""What the wrapper costs beside the compiled code: fxstack's and that of torch's AOT layer, in the same run.

    python packages/functionalize/tests/sweeps/overhead.py [--markdown]

The compiled functions return at once what they made before, so that nothing but the wrappers is timed. The floor of a
training forward is torch's own ``autograd.Function``, which here does nothing but save its inputs.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[4] / "testing"))

import torch
from compare import as_graph
from helpers import save_everything
from result_tables import Table
from torch._functorch.aot_autograd import aot_module_simplified

from fxstack_functionalize import aot


def microseconds(function, number=2000, repeats=15):
    """The best of several runs, in processor time."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(number):
            function()
        best = min(best, (time.process_time() - start) / number)
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


class Saves(torch.autograd.Function):
    """The least that a forward with a backward does."""

    @staticmethod
    def forward(ctx, *args):
        ctx.save_for_backward(*args)
        return torch.empty(4)


def measure(table, name, fn, inputs):
    graph = as_graph(fn, len(inputs))
    ours = aot(graph, inputs, fw_compiler=instant, partitioner=save_everything)
    theirs = aot_module_simplified(graph, inputs, fw_compiler=boxed_instant, bw_compiler=boxed_instant)
    ours(*inputs), theirs(*inputs)
    results = (torch.empty(4),) * 20
    floor = microseconds(lambda: (torch.empty(4), *results[1:]))
    times = [microseconds(lambda f=f: f(*inputs)) - floor for f in (ours, theirs)]
    own = None
    if inputs[0].requires_grad:
        apply = super(torch.autograd.Function, Saves).apply
        own = microseconds(lambda: apply(*inputs)) - microseconds(lambda: torch.empty(4))
    table.row(name, *("" if us is None else f"{us:.1f}" for us in (*times, own)))


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = []
        microseconds.__defaults__ = (5, 1)
    table = Table("case", "fxstack us", "torch's AOT layer us", "of fxstack torch's autograd.Function us")
    measure(table, "inference, 1 input", increment, [torch.randn(4)])
    measure(table, "training forward, 1 input", increment, [torch.randn(4, requires_grad=True)])
    many = [torch.randn(4, requires_grad=True) for _ in range(20)]
    measure(table, "training forward, 20 inputs", product, many)
