"""``fxstack.repro`` and ``repro_dir``: what a program compiles, as scripts that run without fxstack."""

import os
import subprocess
import sys

import pytest
import torch

import fxstack


def run(path):
    """What the script prints, where fxstack cannot be imported."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    code = f"import sys, runpy; sys.argv = ['repro', '--repeats', '2']; runpy.run_path({str(path)!r}, run_name='__main__')"
    command = [sys.executable, "-c", code + "; assert not [m for m in sys.modules if m[:7] == 'fxstack']"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def scripts(folder):
    return sorted(folder.glob("*.py"))


def broken_in_two(x):
    y = x.softmax(-1)
    fxstack.graph_break()
    return y.sum(0) + 1


@pytest.mark.parametrize("wrap", [lambda fn: fn, fxstack.compile])
def test_each_graph_of_a_function(tmp_path, wrap):
    written = fxstack.repro(wrap(broken_in_two), torch.randn(8, 300), path=tmp_path / "made")
    assert [file.name for file in written] == ["graph_0.py", "graph_1.py"]
    assert all("check: ok, 1 outputs" in run(file) for file in written)


@pytest.mark.parametrize("wrap", [lambda fn: fn, fxstack.compile])
def test_modules_and_keyword_arguments(tmp_path, wrap):
    model = wrap(torch.nn.Bilinear(3, 4, 5).requires_grad_(False))
    [written] = fxstack.repro(model, torch.randn(2, 3), input2=torch.randn(2, 4), path=tmp_path)
    assert "check: ok" in run(written)


def test_training_writes_forward_and_backward(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.Dropout(0.3),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(5),
    )
    x, target = torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))
    model(x)

    def loss(x, target):
        return torch.nn.functional.cross_entropy(model(x), target)

    fxstack.compile(loss, options={"repro_dir": str(tmp_path)})(x, target).backward()
    assert len(scripts(tmp_path)) == 2
    assert all("check: ok" in run(file) for file in scripts(tmp_path))


def test_dynamic_sizes(tmp_path):
    compiled = fxstack.compile(
        lambda x: (x * x.shape[0]).cumsum(0).flatten()[1:], dynamic=True, options={"repro_dir": tmp_path}
    )
    compiled(torch.randn(6, 7))
    assert all("check: ok" in run(file) for file in scripts(tmp_path))
    assert len(scripts(tmp_path)) == 1
