"""Subclasses of classes in C that hide what the class in C keeps by something else of that name."""

import collections
import functools

import pytest
import torch

import fxstack_capture as fx


def affine(a, b, c=1):
    return a * 2 + b + c


class Slotted(functools.partial):
    """As pyro's ``_bound_partial``: ``func`` is what its partial calls."""

    __slots__ = ("func",)

    def __init__(self, fn, *args, **kwargs):
        self.func = fn.func if isinstance(fn, functools.partial) else fn


class Strange(functools.partial):
    args = "args"

    @property
    def keywords(self):
        raise RuntimeError("asked")


class Bounded(collections.deque):
    maxlen = "none"


class Made(collections.defaultdict):
    default_factory = "none"


class Failed(Exception):  # noqa: N818
    args = "hidden"


OUTSIDE = Slotted(functools.partial(affine, 3), c=4), Strange(affine, 3), Bounded([1, 2], 2)
OTHERS = Made(int, a=1), Failed(1)


def called_outside(x):
    return OUTSIDE[0](x), OUTSIDE[0].func is affine, OUTSIDE[1](x)


def called_inside(x):
    made = Slotted(functools.partial(affine, 3), c=x)
    return made(x), made.args, made.func is affine


def returned(x):
    return Slotted(functools.partial(affine, 3), c=5), Strange(affine, 3), x + 1


def held(x):
    bounded, made, failed = OUTSIDE[2], OTHERS[0], OTHERS[1]
    return x * made["a"], bounded.maxlen, made.default_factory, failed.args, list(bounded)


def shown(value):
    if isinstance(value, functools.partial):
        members = [vars(functools.partial)[n].__get__(value) for n in ("func", "args", "keywords")]
        return type(value).__name__, members, getattr(value, "func", None)
    return str(value)


@pytest.mark.parametrize("fn", [called_outside, called_inside, returned, held])
@pytest.mark.filterwarnings("error:internal error")
def test_equals_plain_python(fn):
    optimised = fx.optimize()(fn)
    for _ in range(2):
        assert [shown(v) for v in optimised(torch.ones(2))] == [shown(v) for v in fn(torch.ones(2))]
