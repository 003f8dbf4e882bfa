"""Merged groups can be put in an order, whatever they share: long random programs of calls, loops and reductions."""

import random

import pytest
import torch
from inductor_checks import FAST, check
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import lower
from fxstack_inductor.schedule.steps import KernelStep

X, Y = torch.randn(6, 6), torch.randn(6, 6)
OPERATIONS = (
    lambda a, b: a.sin(),
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a @ b * 0.1,
    lambda a, b: a.sum(0, keepdim=True) + b,
    lambda a, b: a.softmax(-1),
    lambda a, b: a.t() + b,
    lambda a, b: a.mean(1, keepdim=True) * b,
    lambda a, b: torch.cat([a[:3], b[3:]]),
)


def program(seed, length=150):
    """Each step takes a late value, mostly, and any earlier one."""

    def run(x, y):
        rng = random.Random(seed)
        values = [x, y]
        for _ in range(length):
            a = rng.choice(values[-12:]) if rng.random() < 0.7 else rng.choice(values)
            b = rng.choice(values)
            values.append(OPERATIONS[rng.randrange(len(OPERATIONS))](a, b))
        return tuple(rng.sample(values, 12))

    return run


@pytest.mark.parametrize("seed", [12, 33, 53])
def test_merged_groups_have_an_order(seed):
    """These had groups with something in between that the search did not enter."""
    plan = lower(make_fx(program(seed))(X, Y), options=FAST).plan
    made = {}
    for i, step in enumerate(plan.steps):
        outputs = step.stored if isinstance(step, KernelStep) else step.outputs
        made |= {id(node): i for node in outputs}
    for i, step in enumerate(plan.steps):
        assert all(made.get(id(node), -1) <= i for node in step.reads)
    assert len(made) > len(plan.steps) > 20


def test_values_of_a_long_program():
    check(program(1, length=60), X, Y)
