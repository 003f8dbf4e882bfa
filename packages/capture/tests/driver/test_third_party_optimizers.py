"""Numbers in the state of an optimizer become symbols at their second value: few graphs for many steps."""

import copy
import itertools

import pytest
import torch
from counting import Counting
from same import difference
from third_party_optimizers import OPTIMIZERS
from torch import nn

import fxstack_capture as fx

STEPS = 20
BRANCHES = {"RAdam": 1, "Soap": 3, "ScheduleFree": 1}
"""Graphs for the other side of branches on the number of the step, and for the strides of a new basis."""


def parameters():
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(3, 4, generator=generator)) for _ in range(2)]


def state_of(optimizer, params):
    settings = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    return params, [dict(optimizer.state[p]) for p in params], settings


def train(makes, *, reload_at=None):
    """Step an optimizer plainly and another compiled; returns the graphs that each step made."""
    ours, theirs = parameters(), parameters()
    optimizer, eager = makes(ours), makes(theirs)
    backend, counts = Counting(), [0]
    step = fx.optimize(backend)(optimizer.step)
    for number in range(STEPS):
        if number == reload_at:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        generator = torch.Generator().manual_seed(number)
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape, generator=generator)
            q.grad = p.grad.clone()
        step()
        eager.step()
        assert difference(state_of(optimizer, ours), state_of(eager, theirs)) is None
        counts.append(len(backend.graphs))
    return [after - before for before, after in itertools.pairwise(counts)]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_few_graphs_for_many_steps(kind):
    made = train(kind)
    assert sum(made) <= 3 + BRANCHES.get(kind.__name__, 0)


OF_TORCH = {
    "Adadelta": torch.optim.Adadelta,
    "Adagrad": torch.optim.Adagrad,
    "Adam": lambda params: torch.optim.Adam(params, lr=0.01),
    "AdamW amsgrad": lambda params: torch.optim.AdamW(params, amsgrad=True, foreach=True),
    "Adafactor": torch.optim.Adafactor,
    "NAdam": torch.optim.NAdam,
    "Rprop": torch.optim.Rprop,
    "SGD momentum": lambda params: torch.optim.SGD(params, momentum=0.9, nesterov=True),
}


@pytest.mark.parametrize("name", OF_TORCH)
def test_a_step_is_compiled_once_when_the_first_has_made_the_state(name):
    made = train(OF_TORCH[name], reload_at=6)
    first = int(name == "Adagrad")  # it makes the state when it is constructed
    assert made == [first, 1 - first] + [0] * (STEPS - 2)
