"""``fxstack minify`` on programs with planted faults: the script is short, fails alone, and the stage is named."""

import pytest

from fxstack.minify.command import fails_in_eager

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


ENDS = {
    "exception": ("raise ValueError('mine')", "ends with exit code 1", "ValueError: mine"),
    "exit code": ("print('no data', file=sys.stderr); sys.exit(3)", "ends with exit code 3", "no data"),
    "text": ("sys.exit('no data')", "ends with exit code 1", "no data"),
    "no cleanup": ("os._exit(4)", "ends with exit code 4", ""),
    "signal": ("os.kill(os.getpid(), signal.SIGTERM)", "ends by SIGTERM", ""),
    "exec": ("os.execv('/bin/false', ['false'])", "ends with exit code 1", ""),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_program_that_fails_by_itself(tmp_path, end):
    line, text, stderr = ENDS[end]
    script = tmp_path / "program.py"
    script.write_text(f"import os, signal, sys\n{line}\n")
    verdict = fails_in_eager([str(script), "--lr", "0.1"], module=False)
    assert verdict.status == 4
    assert f"in plain eager it {text}. Mend it" in verdict.summary
    assert verdict.summary.endswith(f": TORCH_COMPILE_DISABLE=1 python {script} --lr 0.1")
    assert stderr in str(verdict).partition("stderr: ")[2]
    assert len(verdict.stderr) <= 5


ONLY_HERE = "5 * (os.environ.get('TORCH_COMPILE_DISABLE') != '1')"


@pytest.mark.parametrize(
    ("line", "status", "text"),
    [
        ("sys.exit(3)", 4, "the program fails by itself"),
        ("os._exit(0)", 0, "nothing is wrong"),
        (f"sys.exit({ONLY_HERE})", 3, "no script: the program fails only on fxstack"),
    ],
)
def test_a_program_that_ends_itself(tmp_path, line, status, text):
    verdict, script = minified(tmp_path, "", f"import os, sys\n{CHOICE}\n{line}\n")
    assert (verdict["status"], script) == (status, "")
    assert verdict["summary"].startswith(text)
    assert verdict["calls"] == 3 * (status != 4)


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
