"""Tags on module classes reach a compiled model."""

import pytest
import torch
from torch import nn

import fxstack
from fxstack_partition import PartitionOptions, by_module, partition


class Inner(nn.Module):
    def forward(self, x):
        return x.sin().exp()


@pytest.mark.parametrize("tag", ["must_save", "must_recompute"])
def test_a_tagged_module(tag):
    model = nn.Sequential(nn.Linear(8, 8), Inner(), nn.Tanh())
    parts = []

    def cut(joint, _options=None):
        parts.append(
            partition(joint, "min_cut", PartitionOptions(policy=by_module({"Inner": tag})))
        )
        return parts[-1]

    compiled = fxstack.compile(model, options={"partitioner": cut})
    x = torch.randn(4, 8)
    torch.testing.assert_close(compiled(x), model(x))
    (part,) = parts
    again = {"sin", "exp"} & set(part.recomputed)
    assert again == ({"sin", "exp"} if tag == "must_recompute" else set())
