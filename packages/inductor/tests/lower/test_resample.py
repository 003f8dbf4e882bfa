"""Nearest-neighbour interpolation and padding near the edge."""

import pytest
import torch
from inductor_checks import check, check_gradients, externs
from torch.nn import functional as F

IMAGE = torch.randn(2, 3, 6, 5)


def lowered(compiled):
    assert not externs(compiled)


@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 6, 5), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("factor", [1, 2, 3, 7])
def test_whole_factors(shape, factor):
    lowered(check(lambda x: F.interpolate(x, scale_factor=factor) * 2, torch.randn(shape)))


def test_sizes():
    lowered(check(lambda x: F.interpolate(x, size=(12, 15)), IMAGE))


def test_other_factors_are_eagers():
    check(lambda x: F.interpolate(x, size=(9, 7)), IMAGE)
    check(lambda x: F.interpolate(x, scale_factor=1.5), IMAGE)
    check(lambda x: F.interpolate(x, size=49 * 3), torch.randn(1, 1, 3))


def test_bytes():
    check(lambda x: F.interpolate(x, scale_factor=2), (IMAGE * 50).to(torch.uint8))


@pytest.mark.parametrize("factor", [1, 2, (2, 3)])
def test_gradients(factor):
    check_gradients(lambda x: F.interpolate(x, scale_factor=factor).sin(), IMAGE)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("pad", [(1, 2), (2, 1, 3, 0), (0, 4, 1, 1), (-1, 2, 0, 0)])
def test_padding(mode, pad):
    x = IMAGE if len(pad) == 4 else IMAGE[0]
    lowered(check(lambda x: F.pad(x, pad, mode=mode) * 2, x))


def test_padding_with_symbolic_sizes():
    def f(x):
        return F.pad(x, (1, 2, 2, 0), mode="reflect"), F.pad(x, (1, 2, 2, 0), mode="replicate")

    check(f, IMAGE, symbolic=True, others=[(torch.randn(4, 7, 9, 8),)])
