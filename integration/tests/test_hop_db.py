"""Torch's database of higher-order operators: values and gradients of compiled control flow, in one graph."""

import pytest
import torch
from hop_samples import OPERATORS, check, samples

CAPTURED = tuple(
    f"{name} simple"
    for name in (
        *("cond", "while_loop", "map", "scan", "switch", "invoke_quant", "invoke_quant_packed"),
        *("while_loop_stack_output", "auto_functionalize", "flex_gemm"),
    )
    if f"{name} simple" in OPERATORS
) + ("map nested",)


@pytest.mark.parametrize("name", CAPTURED)
def test_sample(name):
    sample = samples(name, torch.float32, gradients=OPERATORS[name].supports_autograd)[0]
    outcome = check(name, sample)
    assert (outcome.difference, outcome.graphs, outcome.breaks) == (None, 1, ())
