"""Questions of ours to objects of the program that its ``__hash__``, ``__eq__`` and ``__setattr__`` must not hear of."""

import weakref

import pytest
import torch

import fxstack_capture as fx

X, LOG = torch.ones(2), []


class Target:
    weight = 3


class Reference(weakref.ref):
    def __hash__(self):
        LOG.append("hash")
        return super().__hash__()


class Called:
    def __hash__(self):
        LOG.append("hash")
        return hash(max)

    def __eq__(self, other):
        LOG.append("eq")
        return True

    def __call__(self, x=2):
        return x + 1


class Unhashable(Called):
    __hash__ = None


class Failed(Exception):  # noqa: N818
    def __setattr__(self, name, value):
        LOG.append(name)
        super().__setattr__(name, value)


TARGET = Target()
OUTSIDE = Reference(TARGET), Called(), Unhashable(), Failed(1)


def chained(x):
    try:
        try:
            raise KeyError(1)
        except KeyError as error:
            raise Failed(2) from error
    except Failed as error:
        return x, repr(error.__cause__), error.__suppress_context__


def raised_outside(x):
    try:
        raise OUTSIDE[3]
    except Failed as error:
        return x, error.args, error.__context__, error.__suppress_context__


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * OUTSIDE[0]().weight,
        lambda x: OUTSIDE[1](x) * OUTSIDE[1](),
        lambda x: OUTSIDE[2](x),
        lambda x: Called()(x) + len(list(map(Called(), [1]))),
        lambda x: x * Reference(TARGET)().weight,
        lambda x: (x + 1, OUTSIDE[3].__suppress_context__, OUTSIDE[3].args),
        chained,
        raised_outside,
    ],
)
def test_nothing_of_the_program_runs(fn):
    expected, said = observed(fn)
    optimised = fx.optimize()(fn)
    for _ in range(2):
        assert observed(optimised) == (expected, said)


def observed(fn):
    LOG.clear()
    result = repr(fn(X))
    return result, tuple(LOG)
