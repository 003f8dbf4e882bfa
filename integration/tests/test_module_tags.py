"""Tags on module classes and on modules' paths reach a compiled model."""

import pytest
import torch
from torch import nn

import fxstack
from fxstack_partition import PartitionOptions, by_module, partition


class Inner(nn.Module):
    def forward(self, x):
        return x.sin().exp()


def recomputed(model, tags):
    """What the backward computes again of a model that was compiled with these tags on modules."""
    parts = []

    def cut(joint, _options=None):
        parts.append(partition(joint, "min_cut", PartitionOptions(policy=by_module(tags))))
        return parts[-1]

    compiled = fxstack.compile(model, options={"partitioner": cut})
    x = torch.randn(4, 8)
    torch.testing.assert_close(compiled(x), model(x))
    (part,) = parts
    return set(part.recomputed)


@pytest.mark.parametrize("tag", ["must_save", "must_recompute"])
def test_a_tagged_class(tag):
    model = nn.Sequential(nn.Linear(8, 8), Inner(), nn.Tanh())
    again = {"sin", "exp"} & recomputed(model, {"Inner": tag})
    assert again == ({"sin", "exp"} if tag == "must_recompute" else set())


def test_a_tagged_path():
    model = nn.Sequential(nn.Linear(8, 8), Inner(), nn.Linear(8, 8), Inner())
    again = recomputed(model, {"3": "must_recompute", "1": "must_save"})
    assert {"sin", "exp", "sin_1", "exp_1"} & again == {"sin_1", "exp_1"}
    again = recomputed(model, {"[13]": "must_recompute"})
    assert {"sin", "exp", "sin_1", "exp_1"} <= again
