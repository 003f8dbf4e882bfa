"""Comparisons of changing numbers where torch takes a bool: each truth is compiled for, and no call runs in plain Python."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from counting import Counting
from same import difference

import fxstack_capture as fx
from fxstack_capture.driver.errors import TracingWarning

USES = """
torch.set_grad_enabled(b); y = x * 2; torch.set_grad_enabled(True)
with torch.set_grad_enabled(b): y = x * 2
with torch.set_grad_enabled(mode=b): y = x * 2
with torch.inference_mode(b): y = x.detach() * 2
with torch.autocast('cpu', enabled=b): y = x @ x
with torch.autocast('cpu', cache_enabled=b): y = x @ x
torch.use_deterministic_algorithms(b); y = x * 2; torch.use_deterministic_algorithms(False)
y = x.detach().clone().requires_grad_(b) * 2
y = x.sum(0, keepdim=b)
y = x.sum(0, b)
y = F.dropout(x, 0.0, training=b)
y = F.batch_norm(x, torch.zeros(3), torch.ones(3), training=b)
y = torch.zeros(3, requires_grad=b) + x
y = torch.tensor([1.0, 2.0, 3.0], requires_grad=b) + x
y = torch.ones_like(x, requires_grad=b) + 1
y = x.sort(dim=0, descending=b).values
y = torch.sort(x, 0, b)[0]
y = x.topk(2, largest=b).values
y = F.interpolate(x[None, None], scale_factor=2.0, mode='bilinear', align_corners=b)
y = x.to(torch.float64, copy=b)
y = x.std(unbiased=b)
y = x.std(0, b)
y = F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=b)
y = F.avg_pool1d(x[None], 2, ceil_mode=b)
y = torch.linalg.norm(x, keepdim=b)
y = F.embedding(torch.tensor([1, 2]), x, scale_grad_by_freq=b)
y = torch.allclose(x, x, equal_nan=b) * x
y = x * b
y = x + b
y = torch.full((3,), b) * x
""".strip().splitlines()


def program(use):
    names = {"torch": torch, "F": F}
    lines = "\n".join(f"    {line}" for line in use.split("; "))
    exec(f"def f(x, i):\n    b = i % 3 == 0\n{lines}\n    return y", names)
    return names["f"]


@pytest.mark.parametrize("use", USES)
def test_as_eager(use):
    backend = Counting()
    plain, compiled = program(use), fx.optimize(backend)(program(use))
    counts = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", TracingWarning)
        for number in (2, 3, 4, 5, 6, 9, 7, 12, 13):
            x = torch.linspace(0.1, 1, 9).reshape(3, 3).requires_grad_()
            assert difference(compiled(x, number), plain(x, number)) is None
            counts.append(len(backend.graphs))
    assert counts[4] == counts[-1]


@pytest.mark.filterwarnings("error::fxstack_capture.driver.errors.TracingWarning")
def test_numbers_that_nobody_knows_end_the_graph():
    @fx.optimize(Counting(), options=fx.CaptureOptions(capture_scalar_outputs=True))
    def f(x):
        n = x.sum().item()
        return x.sum(0, keepdim=n > 3)

    x = torch.tensor([[1, 2], [3, 4]])
    assert f(x).shape == (1, 2)
    assert f(-x).shape == (2,)
