"""Operators whose result jumps read half precision as eager rounds it, whatever is fused."""

import random

import half_precision
import pytest
import torch

SAMPLE = random.Random(3).sample(half_precision.FAMILY, 40)


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_results_that_jump_are_eagers(case):
    assert half_precision.difference(*case) is None


def test_values_in_front_of_no_jump_stay_in_registers():
    text = half_precision.kernels(lambda x: (x / 7 * 3).exp(), torch.ones(64, dtype=torch.bfloat16))
    assert text.count("bf16_store(") == 1  # its definition: the result is written as a vector
