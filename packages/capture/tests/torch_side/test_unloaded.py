"""Tracing does not load torch's own compiler; once something else has, torch's marked functions go torch's way."""

import subprocess
import sys

CAPTURE = """
import sys, torch
from torch import nn
from fxstack_capture import optimize
layers = [nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.1), nn.BatchNorm1d(8), nn.Softmax(-1)]
model = optimize(lambda graph, inputs: graph.forward)(nn.Sequential(*layers))
x = torch.randn(4, 8)
model(x).sum().backward()
assert "torch._dynamo" not in sys.modules
"""
AFTERWARDS = """
import torch._dynamo
from fxstack_capture.torch_side.global_state import unloaded
marked = next(f for f in unloaded._marked_functions() if f.__name__ == "add")
behind = unloaded._closure_values(marked)["fn"]
before = getattr(behind, "__dynamo_disable")
assert before.__module__ == unloaded.__name__
assert torch.equal(marked(torch.ones(2), 1), torch.full((2,), 2.0))
assert getattr(behind, "__dynamo_disable").__module__ != unloaded.__name__
assert torch.equal(before(torch.ones(2), 1), torch.full((2,), 2.0))
"""


def run(program):
    subprocess.run([sys.executable, "-c", program], check=True)


def test_tracing_loads_no_compiler():
    run(CAPTURE)


def test_once_it_is_loaded_torch_is_asked():
    run(CAPTURE + AFTERWARDS)
