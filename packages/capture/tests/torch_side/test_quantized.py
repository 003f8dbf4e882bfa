"""Operators that return quantized tensors run between graphs: their fakes are not quantized."""

import pytest
import torch

from fxstack_capture import explain, optimize

X = torch.arange(4.0)
PROGRAMS = [
    lambda x: torch.quantize_per_tensor(x * 2, 0.1, 0, torch.qint8).dequantize() + 1,
    lambda x: torch.ops.aten.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize() * 2,
    lambda x: torch.quantize_per_channel(
        x, torch.full((4,), 0.1), torch.zeros(4), 0, torch.qint8
    ).dequantize(),
    lambda x: torch.quantize_per_tensor_dynamic(x, torch.qint8, False).int_repr() + 1,
    lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255) + 1,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_eagers(program):
    expected, result = program(X), optimize(lambda graph, _: graph.forward)(program)(X)
    assert result.dtype == expected.dtype and torch.equal(result, expected)


@pytest.mark.filterwarnings("ignore")
def test_the_graph_breaks_at_the_operator():
    breaks = explain(PROGRAMS[0])(X).breaks
    assert any("quantized tensor, the result of aten.quantize_per_tensor.default" in str(b) for b in breaks)
