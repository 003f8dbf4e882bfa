"""The source of a graph's code is there for tracebacks as long as the code, and then gone."""

import gc
import linecache
import traceback

import torch
from torch.fx import graph_module as torch_graph_module
from torch.fx import symbolic_trace

from fxstack_interchange.modules import make_graph_module


def program(x):
    return x.view(7) + 1


def made():
    traced = symbolic_trace(program)
    return make_graph_module(traced, traced.graph, "Own")


def is_kept(name):
    return name in linecache.cache, name in torch_graph_module._loader.eval_cache


def test_the_source_goes_with_the_module():
    module = made()
    name = type(module).forward.__code__.co_filename
    assert "view(7)" in "".join(linecache.getlines(name))
    del module
    gc.collect()
    assert is_kept(name) == (False, False)


def test_a_traceback_keeps_it():
    module = made()
    try:
        module.forward(torch.ones(3))
    except RuntimeError as raised:
        error = raised
    del module
    gc.collect()
    assert "x.view(7)" in "".join(traceback.format_tb(error.__traceback__))
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    name = frame.f_code.co_filename
    assert is_kept(name) == (True, True)
    del error, frame, _
    gc.collect()
    assert is_kept(name) == (False, False)


def test_it_is_the_module_that_torch_makes():
    assert type(made()).__name__ == "Own" and made()(torch.ones(7)).tolist() == [2.0] * 7
