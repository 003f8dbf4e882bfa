"""The table of scalar operations beside what ATen and both targets have."""

import pytest
import torch

from fxstack_inductor.codegen.c import ops as c_ops
from fxstack_inductor.codegen.triton import ops as triton_ops
from fxstack_inductor.ir.scalar_ops import FLOAT_UNARY, TABLE


@pytest.mark.parametrize("name", TABLE)
def test_both_targets_write_it(name):
    assert (name in c_ops.OPS) is not TABLE[name].gpu
    assert name in triton_ops.OPS


@pytest.mark.parametrize("name", FLOAT_UNARY)
def test_unary_ones_give_floating_point_of_integers(name):
    op = getattr(torch.ops.aten, name).default
    assert op(torch.ones(2, dtype=torch.int32)).dtype is torch.float32
