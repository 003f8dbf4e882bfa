"""Kinds of state that the random programs do not hold: after every change, and the call after it, as eager."""

import contextvars
import ctypes
import enum
import functools
import gc
import io
import linecache
import logging
import types
import weakref

import numpy as np
import pytest
import torch
from class_scenarios import SCENARIOS as CLASS_SCENARIOS
from compare import outcome
from function_scenarios import SCENARIOS as FUNCTION_SCENARIOS
from same import difference
from scenarios import SCENARIOS
from torch import nn

import fxstack_capture

_NAMES = {
    "contextvars": contextvars,
    "ctypes": ctypes,
    "enum": enum,
    "functools": functools,
    "gc": gc,
    "io": io,
    "logging": logging,
    "types": types,
    "weakref": weakref,
    "np": np,
    "torch": torch,
    "nn": nn,
}


@pytest.fixture(autouse=True)
def _forget():
    yield
    fxstack_capture.reset()
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    torch.set_autocast_enabled("cpu", False)


def _objects(name, source):
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope = {"__name__": "scenario", "args": (), **_NAMES}
    torch.manual_seed(0)
    exec(compile(source, name, "exec"), scope)
    return scope


def _outcome(fn, scope, change):
    """In a context of its own for each world: context variables are changed there alone."""
    torch.manual_seed(0)
    exec(change, scope)
    return outcome(fn, scope, None)


def _first_difference(name, source, changes):
    worlds = [_objects(f"<scenario {name}>", source) for _ in range(2)]
    contexts = [contextvars.Context() for _ in worlds]
    options = fxstack_capture.CaptureOptions(recompile_limit=1_000)
    mains = worlds[0]["main"], fxstack_capture.optimize(options=options)(worlds[1]["main"])
    for change in ("pass", *(step for c in changes for step in (c, "pass"))):
        plain, compiled = (
            context.run(_outcome, fn, scope, change)
            for context, fn, scope in zip(contexts, mains, worlds, strict=True)
        )
        if plain[:2] == ("raised", "TorchRuntimeError"):
            continue  # eager's ``cond`` compiles its branches with torch's own compiler, which fails
        if "raised" in (plain[0], compiled[0]):
            found = None if plain == compiled else f"{plain} is not {compiled}"
        else:
            found = difference(plain, compiled)
        if found is not None:
            return f"after {change!r}: {found}"
    return None


ALL = [*SCENARIOS, *FUNCTION_SCENARIOS, *CLASS_SCENARIOS]


@pytest.mark.parametrize(("name", "source", "changes"), ALL, ids=[s[0] for s in ALL])
def test_a_change_between_calls_is_seen(name, source, changes):
    scope = _objects(f"<plain {name}>", source)
    assert outcome(scope["main"], scope, None)[0] == "returned"
    assert _first_difference(name, source, changes) is None
