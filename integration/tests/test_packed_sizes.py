"""What saved-tensor hooks leave of a value is what saving it costs: the partitioner saves whichever is smaller."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

import fxstack
from fxstack_partition import PartitionOptions, partition

PACKINGS = {torch.float64: torch.float32, torch.float16: torch.float16}
"""The dtype that a hook packs into, and the dtype that is saved of a product in float32."""


def saved_dtypes(packed):
    """Compile a step under hooks that convert; return what it saves of its two products, and check its gradient."""
    seen = []

    def keep(joint, options=PartitionOptions()):
        seen.append(partition(joint, "min_cut", options))
        return seen[-1]

    torch.manual_seed(0)
    w = torch.randn(64, 64) / 8

    def program(x):
        return ((x @ w).sin() @ w).exp().sum()

    def gradient(function):
        x = torch.linspace(-1, 1, 64 * 64).reshape(64, 64).requires_grad_()
        with saved_tensors_hooks(lambda t: t.to(packed), lambda t: t.to(torch.float32)):
            function(x).backward()
        return x.grad

    options = {"partitioner": keep, "saved_tensor_hooks": "inline_before_partition"}
    # Hooks see what is saved, which is less than in eager: fewer values are rounded to half precision.
    found, expected = gradient(fxstack.compile(program, options=options)), gradient(program)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)
    given = seen[0].backward.graph_module.graph.find_nodes(op="placeholder")
    values = [node.meta["val"] for node in given if node.name in seen[0].saved]
    return {value.dtype for value in values if value.numel() == 64 * 64}


@pytest.mark.parametrize(("packed", "saved"), PACKINGS.items())
def test_the_smaller_of_a_value_and_what_is_packed_of_it_is_saved(packed, saved):
    assert saved in saved_dtypes(packed)
    assert packed is saved or packed not in saved_dtypes(packed)
