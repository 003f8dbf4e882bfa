"""``fxstack minify`` on programs with planted faults: the script is short, fails alone, and the stage is named."""

import pytest

from .planting import FAULTS, minified, python

LAYERS = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        {line}
        return torch.sigmoid(x) * y + self.count

torch.manual_seed(0)
net = torch.compile(Net())
for _ in range(2):
    net(torch.rand(6, 4)).pow(2).sum().backward()
"""
LINES = {
    "a wrong lowering": ("y = torch.atan(x) * 2", "inductor kernels", ["atan"]),
    "a crash of the compiler": ("y = torch.atan(x) * 2", "inductor kernels", ["atan"]),
    "an exception of the compiler": ("y = torch.atan(x) * 2", "inductor kernels", ["atan"]),
    "a wrong decomposition": ("y = torch.logit(x.sigmoid())", "decompositions", ["logit"]),
    "a wrong partition": ("y = torch.sin(x) * 2", "partition", ["sin"]),
    "a wrong rewrite": ("y = self.count.add_(1) + x", "functionalize", ["add_"]),
}


@pytest.mark.parametrize("fault", LINES)
def test_a_graph_is_minified(tmp_path, fault):
    line, stage, operations = LINES[fault]
    verdict, script = minified(tmp_path, fault, LAYERS.format(line=line))
    assert (verdict["status"], verdict["stage"], verdict["operations"]) == (1, stage, operations)
    assert verdict["lines"] == [f"program.py:13: {line}"]
    assert script.count("\n") <= 30
    alone = python(tmp_path, fault, "fxstack_minified.py")
    assert alone.returncode == (-11 if "crash" in fault else 1)
    if fault == "a wrong lowering":
        assert python(tmp_path, "", "fxstack_minified.py").returncode == 0


CHOICE = """
import torch

def scaled(x, limits):
    parts = []
    for limit in limits:
        x = torch.minimum(x, limit)
        parts.append(x)
    if any(part.dim() > 1 and part is not x for part in parts):
        x = x * 2
    return x + 1

step = torch.compile(scaled)
for _ in range(3):
    print(step(torch.ones(3), [torch.ones(2, 3), torch.ones(1, 3)]).sum())
"""


def test_a_program_is_minified_where_capture_is_at_fault(tmp_path):
    verdict, script = minified(tmp_path, "a wrong polyfill", CHOICE)
    assert (verdict["status"], verdict["stage"]) == (1, "capture")
    assert any("program.py:9: if any(" in line for line in verdict["lines"])
    assert script.count("\n") <= 30
    assert python(tmp_path, "a wrong polyfill", "fxstack_minified.py").returncode == 1
    assert python(tmp_path, "", "fxstack_minified.py").returncode == 0


def test_a_right_program_has_nothing_to_minify(tmp_path):
    verdict, script = minified(tmp_path, "", CHOICE)
    assert (verdict["status"], verdict["graphs"], verdict["calls"], script) == (0, 1, 3, "")


SIZES = """
import torch
step = torch.compile(lambda x: (x.sin() + 1).exp())
for n in (3, 4, 5):
    step(torch.rand(n))
"""


def test_a_fault_of_symbolic_sizes(tmp_path):
    verdict, script = minified(tmp_path, "a fault of symbolic sizes", SIZES)
    assert (verdict["status"], verdict["stage"], verdict["operations"]) == (1, "inductor kernels", ["sin"])
    assert "dynamic=True" in script


def test_wrong_strides(tmp_path):
    program = (
        "import torch\ntorch.compile(lambda x: (x * 2).sin() + 1)(torch.rand(3, 4, dtype=torch.float64))"
    )
    verdict, script = minified(tmp_path, "wrong strides", program)
    assert (verdict["status"], verdict["failure"].split(" (")[0]) == (1, "differs: stride")
    assert "check_stride=True" in script


FOREIGN = """
import torch

@torch.library.custom_op("planted::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

twice.register_fake(lambda x: torch.empty_like(x))
torch.compile(lambda x: twice(x).atan().exp())(torch.rand(4))
"""


def test_an_operator_of_the_program_becomes_an_input(tmp_path):
    verdict, script = minified(tmp_path, "a wrong lowering", FOREIGN)
    assert (verdict["status"], verdict["operations"], "planted" in script) == (1, ["atan"], False)


def test_every_fault_has_a_test():
    others = {"a wrong polyfill", "wrong strides", "a fault of symbolic sizes"}
    assert FAULTS.keys() == others.union(LINES)
