"""Graphs that set torch's state: results are eager's, whoever calls, and tracing leaves the state as it was."""

import pytest
import torch
from compare import compiled
from helpers import run_graph, save_everything

from fxstack_functionalize import UnsupportedGraphError, aot


def _under(dtype, fn):
    def run(*args):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        made = fn(*args)
        torch.set_default_dtype(before)
        return made

    return run


PROGRAMS = {
    "quotient": lambda x: x / 2,
    "quotient_of_two": lambda x: x / (x + 1),
    "function": lambda x: (x.sqrt(), x.exp().sum()),
    "number": lambda x: (x * 1.5, x + True),
    "imaginary": lambda x: x * 1j,
    "made": lambda x: (torch.ones(2) * x[:2], torch.arange(0, 1, 0.5), torch.full((2,), 1.5)),
    "random": lambda x: torch.rand(2).dtype is torch.rand_like(torch.ones(2)).dtype and x / 3,
    "composite": lambda x: torch.nn.functional.cosine_similarity(x / 1, x * 2.0, dim=0),
    "chosen": lambda x: torch.where(x > 1, 1.0, 0.5),
    "whole": lambda x: (x * 2, x.sum(), x > 1),
}


NOT_IN_TORCH = {("imaginary", torch.bfloat16)}
"""From torch 2.15 on the complex numbers beside bfloat16 have no multiplication."""


@pytest.mark.parametrize(
    ("name", "dtype"),
    sorted({(n, d) for n in PROGRAMS for d in (torch.float64, torch.bfloat16)} - NOT_IN_TORCH, key=str),
)
def test_the_default_dtype_of_the_graph_is_that_of_its_operators(name, dtype):
    fn, x = _under(dtype, PROGRAMS[name]), torch.arange(3)
    run = compiled(fn, [x])
    for _ in range(2):
        torch.testing.assert_close(run(x), fn(x))
    assert torch.get_default_dtype() is torch.float32


@torch.library.custom_op("fxstack_test::in_default_dtype", mutates_args=())
def in_default_dtype(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(x.shape)


@in_default_dtype.register_fake
def _(x):
    return torch.empty(x.shape)


def test_what_cannot_be_spelt_out_is_refused():
    with pytest.raises(UnsupportedGraphError, match=r"in_default.* gives torch.float64 because"):
        compiled(_under(torch.float64, in_default_dtype), [torch.ones(3)])
    assert torch.get_default_dtype() is torch.float32


def test_a_change_of_the_algorithms_is_refused_and_what_they_are_already_is_none():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_deterministic_algorithms, (True,), {"warn_only": False})
    graph.output(graph.call_function(torch.sin, (x,)))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    with pytest.raises(UnsupportedGraphError, match="deterministic algorithms on or off"):
        aot(module, [torch.ones(2)], fw_compiler=run_graph, partitioner=save_everything)
    torch.use_deterministic_algorithms(mode=True)
    try:
        made = aot(module, [torch.ones(2)], fw_compiler=run_graph, partitioner=save_everything)
    finally:
        torch.use_deterministic_algorithms(mode=False)
    assert torch.equal(made(torch.ones(2)), torch.ones(2).sin())
