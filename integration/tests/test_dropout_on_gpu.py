"""Dropout in generated kernels on a real GPU equals eager's bit by bit, with and without CUDA graphs."""

import gpu_dropout
import pytest
import torch

import fxstack

MODES = ("default", "reduce-overhead")


def compilers(**options):
    return {mode: lambda f, m=mode: fxstack.compile(f, mode=m, options=options) for mode in MODES}


def check(device, *, small):
    found = {name: row() for name, row in gpu_dropout.rows(compilers(), device, small=small)}
    assert not {name: wrong for name, wrong in found.items() if wrong}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_kernels_draw_eagers_numbers():
    check("cuda", small=False)


def test_the_comparison_runs_on_a_cpu():
    case = next(
        row for name, row in gpu_dropout.rows(compilers(), "cpu", small=True) if name == "rows float32"
    )
    assert case() == {}
