"""Compilers called inside of compiled code, and functions of C that are compiled themselves: one graph each."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from beside import breaks_beside_plain

from fxstack_capture import native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


def double(x: torch.Tensor, c: float = 2.0):
    return x * c


scripted = torch.jit.script(double)

PROGRAMS = {
    "compile": lambda x: torch.compile(double, backend="eager")(x),
    "a decorator": lambda x: torch.compile(backend="eager")(double)(x, 3.0),
    "script": lambda x: scripted(x, 3.0) + scripted(x),
    "script, given integers": lambda x: (scripted(x.int(), 3), scripted(x.int(), c=2)),
    "a wrapped region": lambda x: torch._higher_order_ops.wrap.wrap(double, x, c=4.0),
    "a copy of a module": lambda x: copy.deepcopy(torch.nn.Linear(3, 3, bias=False).train())(x) * 0,
    "whether a profiler runs": lambda x: x + torch.autograd._profiler_enabled(),
    "an argument called from": lambda x: x.clone().uniform_(**{"from": 2, "to": 3}) * 0,
}


MODULE = torch.nn.Linear(3, 3)


WRAPPERS = {
    "called": lambda x: (x + 1, type(torch.compile(MODULE, backend="eager")).__name__),
    "a decorator": lambda x: (x + 1, type(torch.compile(backend="eager")(MODULE)).__name__),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_modules_keep_their_wrapper(name):
    """Which a program can look at, so it ends the graph."""
    assert breaks_beside_plain(WRAPPERS[name], lambda: (torch.arange(3.0),))


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_part_of_the_graph(name):
    assert breaks_beside_plain(PROGRAMS[name], lambda: (torch.arange(3.0),)) == []


@pytest.mark.parametrize(
    "fn", [torch.sin, functools.partial(torch.mul, 2), torch.Tensor.cos, torch.ops.aten.exp]
)
def test_functions_of_c_are_compiled(fn):
    graphs, x = [], torch.randn(3)
    compiled = optimize(lambda gm, _: (graphs.append(gm), gm)[1], fullgraph=True)(fn)
    assert torch.equal(compiled(x), fn(x))
    assert len(graphs) == 1


def test_a_profiler_that_starts_is_seen():
    compiled = optimize(fullgraph=True)(PROGRAMS["whether a profiler runs"])
    assert compiled(torch.zeros(1)) == 0
    with torch.autograd.profiler.profile():
        assert compiled(torch.zeros(1)) == 1
