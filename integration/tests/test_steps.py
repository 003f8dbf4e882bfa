"""Gradients of a training step with one thread and with three, beside float64: a sample of ``sweeps/steps.py``."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "sweeps"))

import steps


def test_a_step_is_eagers_with_several_threads():
    """Of the transformer in which loops were shared wrongly: columns of heads, whose gradients alternate in memory."""
    before = torch.get_num_threads()
    try:
        found = [*steps.check("swin", steps.arguments(["--dry"]))]
    finally:
        torch.set_num_threads(before)
    assert [(threads, wrong, same) for threads, wrong, _, same in found] == [(1, 0, True), (3, 0, True)]
