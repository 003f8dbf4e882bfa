"""The source of a graph's code is there for tracebacks as long as the code, and then gone."""

import copy
import gc
import linecache
import operator
import pickle
import traceback

import torch
from torch.fx import graph_module as torch_graph_module
from torch.fx import symbolic_trace

from fxstack_interchange.modules import make_graph_module


def program(x):
    return x.view(7) + 1


def made(**how):
    traced = symbolic_trace(program)
    return make_graph_module(traced, traced.graph, "Own", **how)


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


def test_deferred_code_is_made_when_it_is_needed():
    module = made(deferred=True)
    assert "_code" not in vars(module)
    assert type(module).__name__ == "Own" and module(torch.ones(7)).tolist() == [2.0] * 7
    name = type(module).forward.__code__.co_filename
    assert is_kept(name) == (True, True)
    del module
    gc.collect()
    assert is_kept(name) == (False, False)


def test_deferred_code_follows_the_graph():
    module = made(deferred=True)
    last = next(node for node in module.graph.nodes if node.target is operator.add)
    last.update_arg(1, 5)
    module.recompile()
    assert module(torch.ones(7)).tolist() == [6.0] * 7
    assert pickle.loads(pickle.dumps(module))(torch.ones(7)).tolist() == [6.0] * 7
    assert copy.deepcopy(module)(torch.ones(7)).tolist() == [6.0] * 7
