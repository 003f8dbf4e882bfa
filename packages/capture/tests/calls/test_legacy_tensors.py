"""Tensors made by calling their class are in the graph, and equal eager's."""

import pytest
import torch

import fxstack_capture as fx

X = torch.arange(6.0).reshape(2, 3)

PROGRAMS = {
    "data": lambda x: torch.Tensor([1, 2.5]) + x[0, :2],
    "mixed_data": lambda x: torch.Tensor([[True, 2]]) + x[0, :2],
    "nested_integers": lambda x: torch.LongTensor([[1], [2]]) * x.long(),
    "a_tuple_is_data": lambda x: torch.Tensor((2, 3)) + x[0, :2],
    "nothing": lambda x: (torch.Tensor(), torch.Tensor([]), torch.Tensor([[]]), x + 1),
    "sizes": lambda x: torch.DoubleTensor(x.shape[0], 3).zero_() + x,
    "a_size": lambda x: torch.FloatTensor(x.size()).fill_(2) + x,
    "booleans": lambda x: torch.BoolTensor([True, False, True]) & (x > 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name):
    program = PROGRAMS[name]
    torch.testing.assert_close(fx.capture(program, X)(X), program(X), rtol=0, atol=0)


def test_sizes_are_symbolic():
    captured = fx.optimize(dynamic=True, fullgraph=True)(
        lambda x: torch.Tensor(x.shape[0], 2).zero_()
    )
    assert captured(X).shape == (2, 2) and captured(X.T).shape == (3, 2)


def test_default_dtype():
    def program(x):
        return torch.Tensor([1, 2]), x + 1

    compiled = fx.optimize(fullgraph=True)(program)
    assert compiled(X)[0].dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(X)[0].dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("data", [lambda x: [x[0, 0], 2.0], lambda x: x])
def test_what_the_old_constructors_alone_take_ends_the_graph(data):
    def program(x):
        return torch.Tensor(data(x)) * 2

    torch.testing.assert_close(fx.optimize()(program)(X), program(X))
