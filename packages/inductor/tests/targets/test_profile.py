"""A profile_steps graph returns what the compiled graph returns, and has the seconds of each kernel and call."""

import pytest
import torch
from inductor_checks import trace

from fxstack_inductor import lower
from fxstack_inductor.cost.cpu import measure_cpu
from fxstack_inductor.cost.traffic import Traffic
from fxstack_inductor.targets.c.profile import profile_steps


def chain(x, w):
    return (x @ w).softmax(-1), x.sin()


@pytest.mark.parametrize("boxed", [False, True])
def test_each_step_is_timed(boxed):
    arguments = [torch.randn(8, 8), torch.randn(8, 8)]
    lowered = lower(trace(chain, *arguments))
    run = profile_steps(lowered, boxed=boxed)
    results = run.run(list(arguments)) if boxed else run.run(*arguments)
    torch.testing.assert_close(results, chain(*arguments))
    kernels = {step.kernel.name for step in lowered.plan.steps if hasattr(step, "kernel")}
    assert kernels and run.seconds.keys() == kernels | {"mm"}
    assert all(seconds > 0 for seconds in run.seconds.values())


def test_the_slower_of_memory_and_arithmetic_bounds_a_kernel():
    cpu = measure_cpu()
    assert cpu.seconds(Traffic(10**9, 0, 1))[1] == "memory"
    assert cpu.seconds(Traffic(1, 0, 10**12))[1] == "arithmetic"
