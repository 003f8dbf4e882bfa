"""Errors put into the compiler's rules and handlers, one at a time: what the program sees is eager's, and somebody is told.

A case is a program, a place in the compiler that it comes through (a rule of a builtin function, one of torch's, a handler of
an instruction) and an exception, which is raised there by code of nobody's.
"""

from __future__ import annotations

import collections
import functools
import itertools
import warnings

import torch

import fxstack_capture as fx
from fxstack_capture.calls.dispatch import CallDispatcher
from fxstack_capture.interpreter.machine import BytecodeInterpreter
from fxstack_capture.torch_side.rules import table as rules

ERRORS = (AttributeError, TypeError, AssertionError, KeyError, StopIteration, RuntimeError)


class Pair:
    limit = 3

    def __init__(self, first, second):
        self.first, self.second = first, second

    @property
    def both(self):
        return self.first + self.second

    def __iter__(self):
        return iter((self.first, self.second))


def builtins(x):
    try:
        names = sorted({"b": 1, "a": 2}, key=lambda name: -len(name))
        found = isinstance(x, torch.Tensor), hasattr(x, "absent"), getattr(x, "absent", 3)
        numbers = list(map(int, ("1", "2"))), max(1, 2), sum([1, 2]), divmod(7, 2), len(names)
        table = dict(zip(names, itertools.count()))
        table.setdefault("c", 3)
    except (AttributeError, TypeError, KeyError, AssertionError, RuntimeError) as error:
        return x, type(error).__name__
    return x * sum(table.values()), found, numbers, callable(len), bool(names), next(iter(names))


def objects(x):
    pair = Pair(x, x + 1)
    first, second = pair
    setattr(pair, "third", 4)  # noqa: B010
    try:
        pair.absent  # noqa: B018
    except AttributeError as error:
        name = error.name
    queue = collections.deque([first])
    queue.append(second)
    with torch.no_grad():
        total = functools.reduce(lambda a, b: a + b, queue)
    return (total * pair.limit, pair.both, vars(pair)["third"], name, type(pair).__name__, f"{name:>9}")


def tensors(x):
    total = x.sum(dim=0, keepdim=True)
    total[0] = 3
    y = torch.where(total > 0, total, -total).reshape(1, -1)
    z = torch.zeros(y.shape[1], dtype=x.dtype).new_ones(2)
    return (
        (y.detach() + z.clone()).numpy().shape,
        torch.stack([y, y]).to(torch.float64),
        torch.is_grad_enabled(),
    )


PROGRAMS = (builtins, objects, tensors)


def _watch(patch, at, error):
    """Count how often each place is come through; raise ``error`` at the place ``at``."""
    met = {}

    def through(kind, name):
        place = kind, name
        met[place] = met.get(place, 0) + 1
        if place == at:
            raise error("put in by a test")

    def wrapped(kind, name, rule):
        def instead(*args, **kwargs):
            through(kind, name)
            return rule(*args, **kwargs)

        return instead

    rule_of, torch_rule_of = CallDispatcher.rule_of, rules.rule_of
    steps_of = BytecodeInterpreter.steps_of

    def of_builtin(self, fn):
        rule = rule_of(self, fn)
        return rule and wrapped("rule", getattr(fn, "__qualname__", str(fn)), rule)

    def of_torch(fn):
        rule = torch_rule_of(fn)
        return rule and wrapped("torch", getattr(fn, "__qualname__", str(fn)), rule)

    def of_frame(self, program, **options):
        return tuple(
            (wrapped("handler", getattr(handler, "__qualname__", type(handler).__name__), handler), operand)
            for handler, operand in steps_of(self, program, **options)
        )

    patch.setattr(CallDispatcher, "rule_of", of_builtin)
    patch.setattr(rules, "rule_of", of_torch)
    patch.setattr(BytecodeInterpreter, "steps_of", of_frame)
    return met


def compiled(program, patch, at=None, error=None, **options):
    """(result or exception, the warnings of the compiler's own, the places that were come through)."""
    fx.reset()
    with patch.context() as inner, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        met = _watch(inner, at, error)
        try:
            result = fx.optimize(**options)(lambda x: program(x))(torch.ones(3, 2))
        except Exception as raised:
            result = raised
    texts = [str(w.message) for w in said if "internal error of fxstack-capture" in str(w.message)]
    return result, texts, met


def cases(patch):
    """(program, place, error), in a fixed order."""
    return [
        (program, place, ERRORS[number % len(ERRORS)])
        for program in PROGRAMS
        for number, place in enumerate(compiled(program, patch)[2])
    ]


def problem(program, place, error, patch):
    """What is wrong with the outcome of one case; None if nothing is."""
    expected = str(program(torch.ones(3, 2)))
    result, texts, met = compiled(program, patch, place, error)
    if place not in met:
        return None
    if str(result) != expected:
        return f"{result!r} is not {expected}"
    if len(texts) != 1 or "put in by a test" not in texts[0]:
        return f"said: {texts}"
    refused, _, _ = compiled(program, patch, place, error, fullgraph=True)
    if not isinstance(refused, fx.Unsupported) or "internal error" not in str(refused):
        return f"under fullgraph: {refused!r}"
    return None
