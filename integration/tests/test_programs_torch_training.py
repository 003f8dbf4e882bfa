"""Training as people write it, compiled: optimizers, gradients taken inside, checkpoints, hooks."""

import pytest
import torch
from beside_eager import beside_eager
from torch import nn
from torch.nn import functional as F

import fxstack_capture

PROGRAMS = {}


def program(**options):
    def register(fn):
        PROGRAMS[fn.__name__] = (fn, options)
        return fn

    return register


def network():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def steps(c, optimizer_of, count=3):
    """Some steps of a small model, the optimizer's ``step`` compiled."""
    model = network()
    optimizer = optimizer_of(model.parameters())
    step = c(optimizer.step)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(5, 4)).pow(2).sum().backward()
        step()
    state = [optimizer.state[p] for p in model.parameters()]
    return model, state, optimizer.param_groups[0]["lr"]


@program(breaks=0)
def sgd_with_momentum(c):
    return steps(c, lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True))


@program(breaks=0)
def adamw_computes_bias_corrections_in_double(c):
    return steps(c, lambda ps: torch.optim.AdamW(ps, lr=0.1, amsgrad=True))


@program(breaks=0)
def adam_foreach(c):
    return steps(c, lambda ps: torch.optim.Adam(ps, lr=0.1, foreach=True))


@program(breaks=0)
def sgd_with_learning_rate_in_a_tensor(c):
    return steps(c, lambda ps: torch.optim.SGD(ps, lr=torch.tensor(0.1)))


@program(breaks=0)
def sgd_foreach_with_learning_rate_in_a_tensor(c):
    return steps(c, lambda ps: torch.optim.SGD(ps, lr=torch.tensor(0.1), foreach=True))


@program(breaks=0)
def rmsprop_centered(c):
    return steps(c, lambda ps: torch.optim.RMSprop(ps, centered=True, momentum=0.5))


@program()
def radam_decides_by_its_step_count(c):
    return steps(c, lambda ps: torch.optim.RAdam(ps, lr=0.1), count=7)


@program(breaks=0)
def scheduler_changes_the_learning_rate(c):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    step = c(optimizer.step)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(5, 4)).sum().backward()
        step()
        scheduler.step()
    return model, optimizer.param_groups[0]["lr"]


@program()
def whole_training_step(c):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    @c
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = [step(torch.randn(5, 4), torch.randn(5, 2)) for _ in range(3)]
    return losses, model


@program(breaks=0)
def profiler_regions(c):
    @c
    def f(x):
        with torch.profiler.record_function("region"):
            return x.sin()

    return f(torch.ones(3))


@program(breaks=1)
def graph_break_inside_a_profiler_region(c):
    @c
    def f(x):
        with torch.profiler.record_function("region"):
            y = x.sin()
            fxstack_capture.graph_break()
            return y + 1

    return f(torch.ones(3))


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name):
    fn, options = PROGRAMS[name]
    beside_eager(fn, **options)
