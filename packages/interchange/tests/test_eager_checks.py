"""Arguments that eager refuses and torch's fake kernels accept."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fxstack_interchange.torch_facts.checks import refuses

aten = torch.ops.aten
MODE = FakeTensorMode()


def fake(*sizes, dtype=torch.float32):
    with MODE:
        return torch.empty(sizes, dtype=dtype)


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.celu.default, (fake(3), 0.0)),
        (aten.smooth_l1_loss.default, (fake(3), fake(3), 1, -1.0)),
        (aten._softmax.default, (fake(3), 6, False)),
        (aten.celu.default, (fake(1000, 1000), 0.0)),
        (aten.binary_cross_entropy.default, (fake(5, 5), fake(5, 5), fake(1, 5, 5))),
        (aten._softmax_backward_data.default, (fake(1, 5), fake(5), 0, torch.float32)),
    ],
)
def test_refused(func, args):
    assert refuses(func, args, {}, args[0])


@pytest.mark.parametrize(
    ("func", "args"),
    [
        (aten.celu.default, (fake(3), 1.0)),
        (aten._softmax.default, (fake(3), 0, False)),
        (aten.celu.default, (fake(1000, 1000), 1.0)),
        (aten.floor_divide.default, (fake(3, dtype=torch.int64), fake(3, dtype=torch.int64))),
        (aten.linalg_cholesky_ex.default, (fake(3, 3),)),
        (aten.linalg_ldl_solve.default, (fake(3, 3), fake(3, dtype=torch.int32), fake(3, 2))),
    ],
)
def test_accepted(func, args):
    assert not refuses(func, args, {}, args[0])


def test_random_numbers_are_drawn_as_if_nobody_had_asked():
    before = torch.get_rng_state()
    assert refuses(aten.bernoulli_.float, (fake(3), 1.5), {}, fake(3))
    assert not refuses(aten.bernoulli_.float, (fake(3), 0.5), {}, fake(3))
    assert torch.equal(torch.get_rng_state(), before)
