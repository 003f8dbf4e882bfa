"""Operators whose result jumps read half precision as eager rounds it, whatever is fused."""

import random

import half_precision
import pytest
import torch

SAMPLE = random.Random(3).sample(half_precision.FAMILY, 40)


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_results_that_jump_are_eagers(case):
    assert half_precision.difference(*case) is None


MOVED = {
    "reshaped": lambda x: (x.t() / 3).reshape(-1, 4),
    "joined": lambda x: torch.cat([(x / 3).flip(0), (x / 7).roll(1, 0)], 1),
    "stacked": lambda x: torch.stack([x / 3, x * 0.3], 1).flatten(1),
    "gathered": lambda x: (x / 3).gather(1, torch.arange(64).flip(0).expand(4, 64)),
    "indexed": lambda x: (x / 3)[:, torch.arange(64).flip(0)],
    "padded": lambda x: torch.nn.functional.pad(x / 3, (1, 1)),
    "extremes": lambda x: (x / 3).amax(-1, keepdim=True),
}


@pytest.mark.parametrize("use", ["eq", "floor", "argmax", "max"])
@pytest.mark.parametrize("moved", MOVED)
def test_elements_that_move_are_rounded(moved, use, monkeypatch):
    monkeypatch.setitem(half_precision.VALUES, moved, MOVED[moved])
    assert half_precision.difference(moved, use, torch.bfloat16) is None


def test_values_in_front_of_no_jump_stay_in_registers():
    text = half_precision.kernels(lambda x: (x / 7 * 3).exp(), torch.ones(64, dtype=torch.bfloat16))
    assert text.count("bf16_store(") == 1  # its definition: the result is written as a vector
