"""A kernel copies images of convolutions that ATen would copy, and images of pools with gaps; eager's values and strides stay."""

import pytest
import torch
from inductor_checks import check, kernels

F = torch.nn.functional
WEIGHT = torch.randn(6, 4, 3, 3)
STRIDED = {
    "transposed": lambda x: x.transpose(2, 3),
    "every second": lambda x: x[..., ::2],
    "part of wider rows": lambda x: x[..., 1:-1],
    "expanded": lambda x: x[:1, :1].expand(2, 4, 12, 12),
}


def copies(fn, *inputs):
    return len(kernels(check(fn, *inputs)))


@pytest.mark.parametrize("layout", STRIDED)
def test_strided_images_are_copied(layout):
    assert copies(lambda x, w: F.conv2d(STRIDED[layout](x), w), torch.randn(2, 4, 12, 12), WEIGHT) == 1
    assert copies(lambda x, w: F.conv2d(STRIDED[layout](x) * 2, w), torch.randn(2, 4, 12, 12), WEIGHT) == 1


def test_contiguous_and_channels_last_images_are_not_copied():
    images = torch.randn(2, 4, 12, 12)
    for x in (images, images.to(memory_format=torch.channels_last)):
        assert copies(F.conv2d, x, WEIGHT) == 0
    assert copies(F.conv2d, images.transpose(2, 3), WEIGHT.to(memory_format=torch.channels_last)) == 0


def test_signals_and_volumes():
    assert copies(lambda x, w: F.conv1d(x.t()[None], w), torch.randn(30, 4), torch.randn(6, 4, 3)) == 1
    volumes, weight = torch.randn(1, 4, 5, 6, 7), torch.randn(6, 4, 3, 3, 3)
    assert copies(lambda x, w: F.conv3d(x.transpose(3, 4), w), volumes, weight) == 1


def test_symbolic_sizes():
    others = [(torch.randn(n, 4, 12, 9), WEIGHT) for n in (1, 2, 5)]
    check(lambda x, w: F.conv2d(x.transpose(2, 3), w), *others[2], symbolic=True, others=others)


@pytest.mark.parametrize("pool", [lambda x: F.max_pool2d(x, 3, 1, 1), lambda x: F.avg_pool2d(x, 3, 1)])
def test_pools_of_images_with_gaps_in_rows(pool):
    made = {
        name: copies(lambda x, of=of: pool(of(x)), torch.randn(2, 4, 12, 12)) for name, of in STRIDED.items()
    }
    assert made == {"transposed": 2, "every second": 2, "part of wider rows": 1, "expanded": 1}
