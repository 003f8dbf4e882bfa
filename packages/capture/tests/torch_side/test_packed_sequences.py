"""Recurrent layers of packed sequences read sizes of batches: the graph ends there, and nothing else happens."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import fxstack_capture as fx


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_equals_eager(kind, grad):
    layer = kind(4, 5, num_layers=2, bidirectional=True, batch_first=True)

    def fn(x, lengths):
        packed = pack_padded_sequence(x * 2, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(layer(packed)[0], batch_first=True)[0] + 1

    compiled = fx.optimize()(fn)
    for lengths in ([6, 2, 4], [3, 6, 1]):
        given = torch.randn(3, 6, 4), torch.tensor(lengths)
        with torch.set_grad_enabled(grad), warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.testing.assert_close(compiled(*given), fn(*given))
