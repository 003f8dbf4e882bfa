"""Calls with one argument that eager refuses: a sample of ``sweeps/arguments.py``."""

import pytest
from perturbed_calls import difference, perturbed
from torch.testing._internal.common_methods_invocations import op_db

NAMES = ("nn.functional.celu", "nn.functional.smooth_l1_loss", "softmax", "nn.functional.pixel_shuffle")
EVERY = 4
CALLS = {
    f"{op.name} {call.what}": call
    for op in op_db
    if op.name in NAMES
    for call in list(perturbed(op))[::EVERY]
}


@pytest.mark.parametrize("name", CALLS)
def test_eager_and_compiled_code_refuse_the_same(name):
    assert difference(CALLS[name]) is None
