"""Numbers out of tensors in expressions: a sample of the family in ``item_expressions``."""

import pytest
import torch
from item_expressions import CASES, OPTIONS, differences

import fxstack


@pytest.mark.parametrize(("expression", "dtype"), CASES[::23], ids=str)
def test_values_and_errors_are_eagers(expression, dtype):
    assert differences(expression, dtype) is None


@pytest.mark.parametrize("expression", ["s ** 3", "s * s * s - s", "s + 0.1 - s"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_kernels_are_eagers(expression, dtype):
    assert differences(expression, dtype, "inductor") is None


def test_whole_powers_of_negative_numbers_stay_in_one_graph():
    compiled = fxstack.compile(
        lambda x, t: x * t.item() ** 3 + (t.item() - 1) ** 2,
        fullgraph=True,
        backend="aot_eager",
        options=OPTIONS,
    )
    x = torch.arange(3.0)
    assert torch.equal(compiled(x, torch.tensor(-1.5)), x * -3.375 + 6.25)
