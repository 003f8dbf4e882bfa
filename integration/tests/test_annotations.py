"""``torch.compiler``'s annotations in programs that go through the whole pipeline."""

import pytest
import torch

import fxstack

X = torch.arange(3.0)


@torch.compiler.allow_in_graph
def scaled(x, k):
    for _ in range(2):
        x = x * k
    return x


@torch.compiler.disable(reason="it prints")
def shown(x):
    print(x.shape)
    return x.sin()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.asked = 0
        self.weight = torch.nn.Parameter(torch.ones(3))

    @torch.compiler.assume_constant_result
    def size(self):
        self.asked += 1
        return 3

    def forward(self, x):
        return shown(scaled(x * self.weight, 2)) * self.size()


@pytest.mark.parametrize("backend", ["eager", None])
def test_annotations_keep_values_and_gradients(backend):
    model, plain = Model(), Model()
    compiled = fxstack.compile(model, backend=backend)
    for _ in range(2):
        found, expected = compiled(X), plain(X)
        torch.testing.assert_close(found, expected)
        found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(model.weight.grad, plain.weight.grad)
    assert model.asked == 1
