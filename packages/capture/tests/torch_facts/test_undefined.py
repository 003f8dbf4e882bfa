"""Results that eager's kernels leave undefined are None of fake tensors too."""

import pytest
import torch

from fxstack_capture.torch_side.fakes.fake_mode import CaptureFakeMode

ATEN = torch.ops.aten


def attention(weights):
    words, projection, square = torch.randn(2, 5, 8), torch.randn(24, 8), torch.randn(8, 8)
    return ATEN._native_multi_head_attention.default(
        *(words, words, words, 8, 2, projection, projection[:, 0], square, square[0]), *(None, weights)
    )


def norm_backward(*mask):
    x, ones = torch.randn(4, 6, 5, 5), torch.ones(6)
    return ATEN.native_batch_norm_backward.default(x, x, ones, ones, ones, ones, ones, True, 1e-5, list(mask))


def layer(grad):
    weights = [torch.randn(24, 8), torch.randn(24, 6), torch.randn(24), torch.randn(24)]
    with torch.set_grad_enabled(grad):
        return ATEN.mkldnn_rnn_layer.default(
            *(torch.randn(5, 3, 8), *weights, torch.zeros(3, 6), torch.zeros(3, 6)),
            *(False, [], 2, 6, 1, True, False, False, grad),
        )


CALLS = {
    "attention with weights": lambda: attention(True),
    "attention without": lambda: attention(False),
    "all gradients": lambda: norm_backward(True, True, True),
    "gradient of the input": lambda: norm_backward(True, False, False),
    "gradients of parameters": lambda: norm_backward(False, True, True),
    "layer for a backward": lambda: layer(True),
    "layer without": lambda: layer(False),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_results_are_missing(name):
    with CaptureFakeMode():
        fake = CALLS[name]()
    assert [x is None for x in fake] == [x is None for x in CALLS[name]()]
