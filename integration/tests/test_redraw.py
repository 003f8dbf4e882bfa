"""Dropout whose numbers the backward draws again: eager's results and draws, checkpointed, under hooks, twice."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import fxstack
from fxstack_partition import PartitionOptions, partition


class Blocks(nn.Module):
    """Layers with dropout; ``checkpointed`` as torch's users do it."""

    def __init__(self, *, checkpointed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
        self.checkpointed = checkpointed

    def block(self, layer, x):
        return torch.relu(nn.functional.dropout(layer(x), 0.3)) + x

    def forward(self, x):
        for layer in self.layers:
            if self.checkpointed:
                x = checkpoint(self.block, layer, x, use_reentrant=False)
            else:
                x = self.block(layer, x)
        return x


def step(function, model, hooks=nullcontext, times=1):
    """Run forward and backward; return gradients, and what the generator draws next."""
    torch.manual_seed(5)
    model.zero_grad()
    x = torch.linspace(-1, 1, 512 * 64).reshape(512, 64).requires_grad_()
    with hooks():
        loss = function(x).square().mean()
    for time in range(times):
        loss.backward(retain_graph=time < times - 1)
    return [x.grad, *(p.grad for p in model.parameters()), torch.rand(3)]


def tightest(seen):
    def cut(joint, options=None):
        seen.append(partition(joint, "budget", PartitionOptions(budget=0.0)))
        return seen[-1]

    return cut


def check(model, hooks=nullcontext, times=1, **options):
    seen = []
    compiled = fxstack.compile(model, options={"partitioner": tightest(seen), **options})
    expected = step(model, model, hooks, times)
    for _ in range(2):
        torch.testing.assert_close(step(compiled, model, hooks, times), expected)
    return any("bernoulli" in name for name in seen[0].recomputed)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_training_step(checkpointed):
    assert check(Blocks(checkpointed=checkpointed))


def test_a_second_backward_draws_the_same():
    assert check(Blocks(), times=2)


def scaled():
    return saved_tensors_hooks(lambda t: t.double() * 2, lambda t: (t / 2).float())


MODES = ("inline", "inline_before_partition", "eager")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hooks", [save_on_cpu, scaled])
def test_hooks_do_not_see_the_state(hooks, mode):
    drawn_again = check(Blocks(), hooks, saved_tensor_hooks=mode)
    # In the joint graph hooks make values that are larger or elsewhere, so another choice may be the best.
    assert drawn_again or mode == "inline_before_partition"
