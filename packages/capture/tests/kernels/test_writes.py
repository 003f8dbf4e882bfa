"""What a kernel writes to, against what it changes when Triton's interpreter runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from user_kernels import WRITES

SIZE = 48
TENSORS = ("x", "y", "out")
ANALYSE = Path(__file__).with_name("analyse.py")


@pytest.fixture(scope="module")
def analysed():
    """By kernel; in a process in which kernels are the compiler's, which has no other than them there."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    made = subprocess.run(
        [sys.executable, "-W", "ignore", str(ANALYSE)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(made.stdout)


def changed(kernel):
    values = {name: torch.randn(SIZE) + k for k, name in enumerate(TENSORS)}
    before = {name: value.clone() for name, value in values.items()}
    kernel[(3,)](*values.values(), SIZE, BLOCK=16)
    return {name for name in TENSORS if not torch.equal(before[name], values[name])}


@pytest.mark.parametrize("name", WRITES)
def test_written_parameters(analysed, name):
    assert set(analysed[name]) & set(TENSORS) == set(WRITES[name][1])


@pytest.mark.parametrize("name", sorted(set(WRITES) - {"through_a_loaded_address"}))
def test_what_changes_was_foreseen(name):
    if name == "moving_in_a_loop" and pytest.importorskip("triton").__version__ < "3.7":
        pytest.skip("Triton 3.6's interpreter takes no number of a loop from NumPy 2.4")
    kernel, expected = WRITES[name]
    assert changed(kernel) == set(expected)


def test_host_side_descriptor_is_its_tensor(analysed):
    assert analysed["host_side"] == ["target"]


def test_graph_marks_what_is_written(analysed):
    assert analysed["schema"] == (
        "(Tensor x, Tensor y, Tensor(a2!) out, SymInt n, SymInt[] launch_grids) -> ()"
    )
