"""The order in memory of tensors that only kernels read."""

import pytest
import torch
from inductor_checks import check, kernels

from fxstack_inductor.codegen.c.strategy import strategy


def strategies(fn, *inputs):
    return [strategy(k) for k in kernels(check(fn, *inputs))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(40, 50), (17, 200)])
def test_a_softmax_along_transposed_memory_is_stored_along_it(shape, dtype):
    x = torch.randn(shape, dtype=dtype)
    assert strategies(lambda x: (x.t().softmax(0), (x.t().abs() + 1).log()), x) == ["rows", "tiles"]


def test_a_softmax_across_transposed_memory_is_stored_along_its_rows():
    assert strategies(lambda x: x.t().softmax(1), torch.randn(40, 50)) == ["turned_rows", "points"]


def test_halves_are_transposed_before_they_are_converted():
    assert strategies(lambda x: x.t().softmax(0), torch.randn(40, 50).bfloat16())[-1] == "points"


def test_batches_and_more_operands():
    x, y = torch.randn(3, 40, 50), torch.randn(3, 50, 40)
    check(lambda x, y: (x.transpose(1, 2) + y.transpose(1, 2)).softmax(1), x, x.cos())
    check(lambda x, y: (x.transpose(1, 2) + y).softmax(1), x, y)
    check(lambda x: x.transpose(1, 2).expand(2, 3, 50, 40).softmax(2), x)
    check(lambda x: x[:, 1:-1, ::2].transpose(1, 2).softmax(1), x)
    check(lambda x: x.transpose(1, 2).unsqueeze(1).softmax(2) * 2, x)


def test_symbolic_sizes():
    others = [(torch.randn(n, 30),) for n in (1, 8, 100)]
    check(lambda x: x.t().softmax(0), *others[2], symbolic=True, others=others)
