"""Importing fxstack loads nothing of the incumbent, and using it compiles no frame with it.

(torch's own fake tensors and make_fx import ``torch._dynamo`` for its configuration; that is torch's doing.)
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
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(use=use)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "clean"


def test_import_loads_no_incumbent():
    run("")


def test_use_compiles_no_frame_with_the_incumbent():
    run(USE)
