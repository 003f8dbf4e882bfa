"""torch's own partitioners in a compiled training step: batch norm's statistics and dropout are eager's."""

import copy

import pytest
import torch
from torch import nn
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition

import fxstack
from fxstack_partition import from_partition_fn


@pytest.mark.parametrize("fn", [default_partition, min_cut_rematerialization_partition])
def test_a_training_step(fn):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3))
    twin = copy.deepcopy(model)
    compiled = fxstack.compile(model, options={"partitioner": from_partition_fn(fn)})
    x = torch.randn(16, 8)
    for step in (compiled, twin):
        torch.manual_seed(1)
        for _ in range(2):
            step(x).square().sum().backward()
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)
