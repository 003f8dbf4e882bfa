"""Changes in place between a compiled forward and its backward: a sample of the family in ``written_family``."""

import pytest
import torch
from written_family import cases, difference

import fxstack


@pytest.mark.parametrize("case", cases()[::97], ids=str)
def test_gradients_are_eagers(case):
    assert difference(*case, "aot_eager") is None


@pytest.mark.parametrize("case", cases()[50::401], ids=str)
def test_gradients_of_kernels_are_eagers(case):
    assert difference(*case) is None


def test_a_parameter_is_saved_without_a_copy():
    weight = torch.nn.Parameter(torch.rand(4))
    loss = fxstack.compile(lambda: (weight.double() ** 3).sum(), backend="aot_eager")()
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
