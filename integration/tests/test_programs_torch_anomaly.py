"""Anomaly mode: errors name the operator, and the line of the program, that eager's name."""

import warnings

import torch
from beside_eager import Programs, attempt
from torch import nn

program = Programs()


def leaf():
    return (torch.arange(4.0) + 1).requires_grad_()


def bad(x):
    y = torch.sqrt(x * 0)  # the line to be found
    return (y * 0).sum()


def told(fn, *args):
    """What happens, and for each warning about an operator whether it shows the line."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = attempt(fn, *args)
    texts = [str(warning.message) for warning in seen]
    return found, ["line to be found" in text for text in texts if "Error detected" in text]


@program(graphs=1, breaks=0)
def around_forward_and_backward(c):
    f, x = c(bad), leaf()
    with torch.autograd.set_detect_anomaly(mode=True):
        y = f(x)
        return told(y.backward), y, x


@program(backend="aot_eager", graphs=1, breaks=0)
def around_a_backward(c):
    x = leaf()
    y = c(bad)(x)
    with torch.autograd.set_detect_anomaly(mode=True):
        return told(y.backward)[0], x


@program(backend="aot_eager")
def around_a_forward_and_its_backward_inside(c):
    @c
    def f(x):
        with torch.autograd.detect_anomaly():
            bad(x).backward()
        return x * 2

    return told(f, leaf())


@program(backend="aot_eager", graphs=2)
def around_a_gradient_inside(c):
    f = c(lambda x: torch.autograd.grad(bad(x), x)[0])
    found = [f(leaf())]
    with torch.autograd.set_detect_anomaly(mode=True):
        found.append(told(f, leaf()))
    return found, f(leaf())


@program(backend="aot_eager", graphs=1, breaks=0)
def nan_that_a_later_operator_hides(c):
    f, x = c(lambda x: torch.where(x > 0, x, torch.sqrt(x - x)).sum()), leaf()
    with torch.autograd.detect_anomaly():
        y = f(x)
        return told(y.backward)[0], x


@program(graphs=1, breaks=0)
def training_without_anomalies(c):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    compiled = c(model)
    for step in range(4):
        with torch.autograd.set_detect_anomaly(mode=step == 1):
            loss = compiled(torch.rand(3, 4)).sin().sum()
        with torch.autograd.set_detect_anomaly(mode=step == 2):
            loss.backward()
    return model


test_programs = program.tests()
