"""Importing fxstack loads nothing of the incumbent, and using it compiles no frame with it.

(torch's own symbolic sizes and higher-order operators import ``torch._dynamo`` for its helpers; that is torch's doing.
Programs without them load nothing of it.)
"""

import subprocess
import sys

PROGRAM = """
import sys, torch
before = set(sys.modules)
import fxstack, fxstack_capture, fxstack_functionalize, fxstack_partition, fxstack_inductor
INCUMBENT = ("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd",
             "torch._functorch.partitioners", "torch._functorch.compilers")
def loaded():
    return sorted(m for m in set(sys.modules) - before if m.startswith(INCUMBENT))
assert not loaded(), ("import", loaded())
{use}
import torch._dynamo
from torch._dynamo.utils import counters
assert not counters["frames"], counters["frames"]
assert not counters["stats"], counters["stats"]
print("clean")
"""

USE = """
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
compiled = fxstack.compile(model)
compiled(torch.randn(2, 4)).sum().backward()
with torch.no_grad():
    compiled(torch.randn(2, 4))
"""


def run(use):
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(use=use)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "clean"


LAYERS = """
layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.GELU(), torch.nn.MaxPool2d(2), torch.nn.Dropout(0.1),
          torch.nn.Flatten(), torch.nn.Linear(36, 8), torch.nn.Unflatten(1, (2, 4)),
          torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), torch.nn.LayerNorm(4), torch.nn.Softmax(-1)]
model = torch.nn.Sequential(*layers)
compiled = fxstack.compile(model)
compiled(torch.randn(2, 3, 8, 8)).sum().backward()
with torch.no_grad():
    compiled(torch.randn(2, 3, 8, 8))
assert not loaded(), ("compile", loaded())
"""


def test_use_loads_no_incumbent():
    run(LAYERS)


def test_use_compiles_no_frame_with_the_incumbent():
    run(USE)
