"""Torch's database of higher-order operators: values and gradients of compiled control flow, in one graph."""

import pytest
import torch
from hop_samples import check, samples

CAPTURED = ("cond simple", "while_loop simple", "map simple", "map nested", "scan simple")


@pytest.mark.parametrize("name", CAPTURED)
def test_sample(name):
    sample = samples(name, torch.float32, gradients=name != "while_loop simple")[0]
    outcome = check(name, sample)
    assert (outcome.difference, outcome.graphs, outcome.breaks) == (None, 1, ())
