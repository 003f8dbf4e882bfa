"""Tensors made by calling their class are in the graph, and equal eager's."""

import numpy as np
import pytest
import torch

import fxstack_capture as fx

X = torch.arange(6.0).reshape(2, 3)
SHARED = np.array([1, 2], np.float32)

PROGRAMS = {
    "data": lambda x: torch.Tensor([1, 2.5]) + x[0, :2],
    "mixed_data": lambda x: torch.Tensor([[True, 2]]) + x[0, :2],
    "nested_integers": lambda x: torch.LongTensor([[1], [2]]) * x.long(),
    "a_tuple_is_data": lambda x: torch.Tensor((2, 3)) + x[0, :2],
    "nothing": lambda x: (torch.Tensor(), torch.Tensor([]), torch.Tensor([[]]), x + 1),
    "sizes": lambda x: torch.DoubleTensor(x.shape[0], 3).zero_() + x,
    "a_size": lambda x: torch.FloatTensor(x.size()).fill_(2) + x,
    "a_tensor": lambda x: torch.Tensor(x) * 2 + torch.FloatTensor(x.t()).t(),
    "numbers_of_tensors": lambda x: torch.Tensor([x[0, 0], 2.0]) + torch.DoubleTensor([x.sum(), 1]),
    "a_range": lambda x: torch.LongTensor(range(3)) * x.long(),
    "a_device": lambda x: torch.Tensor([1, 2], device="cpu") + torch.Tensor(2, device="cpu").fill_(1),
    "symbolic": lambda x: (torch.LongTensor([x.shape[0], 3]), torch.Tensor([x.shape[1], 0.5]), x + 1),
    "booleans": lambda x: torch.BoolTensor([True, False, True]) & (x > 1),
    "booleans of integers": lambda x: torch.BoolTensor([1, 0, 2]) & (x > 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name):
    program = PROGRAMS[name]
    torch.testing.assert_close(fx.capture(program, X)(X), program(X), rtol=0, atol=0)


def test_sizes_are_symbolic():
    captured = fx.optimize(dynamic=True, fullgraph=True)(lambda x: torch.Tensor(x.shape[0], 2).zero_())
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


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_of_a_tensor_an_alias_is_made(dynamic, grad):
    def program(x):
        y = x * 2
        alias = torch.Tensor(y)
        alias.mul_(3)
        return alias, y, torch.Tensor(x), torch.Tensor(x)._is_view()

    compiled = fx.optimize(fullgraph=True, dynamic=dynamic)(program)
    for rows in (2, 3):
        x = torch.arange(6.0).reshape(rows, -1).requires_grad_(grad)
        expected, seen = program(x), compiled(x)
        torch.testing.assert_close(seen, expected, rtol=0, atol=0)
        assert seen[2].data_ptr() == x.data_ptr() and seen[2] is not x
        assert [t.requires_grad for t in seen[:3]] == [grad] * 3


def test_arrays_share_their_memory_where_they_can():
    def program(x):
        return torch.Tensor(SHARED), torch.LongTensor(SHARED), torch.DoubleTensor([[1.0]]), x + 1

    compiled = fx.optimize(fullgraph=True)(program)
    for _ in range(2):
        expected, seen = program(X), compiled(X)
        torch.testing.assert_close(seen, expected, rtol=0, atol=0)
        assert seen[0].data_ptr() == expected[0].data_ptr()
        assert seen[1].data_ptr() != expected[0].data_ptr()


@pytest.mark.parametrize("kind", [torch.LongTensor, torch.DoubleTensor, torch.BoolTensor])
def test_a_tensor_of_another_dtype_is_refused(kind):
    with pytest.raises(TypeError) as expected:
        kind(X)
    with pytest.raises(TypeError) as seen:
        fx.optimize(fullgraph=True)(lambda x: kind(x))(X)  # noqa: PLW0108
    assert str(seen.value) == str(expected.value)


@pytest.mark.parametrize("data", [lambda x: [x.requires_grad_()[0, 0], 2.0], lambda x: x.storage()])
def test_what_the_old_constructors_alone_take_ends_the_graph(data):
    def program(x):
        return torch.Tensor(data(x)) * 2

    torch.testing.assert_close(fx.optimize()(program)(X.clone()), program(X.clone()))


MIXED = {
    "integer_and_float": lambda x: torch.tensor([x[0].long(), x[1], 2]),
    "bool_and_integer": lambda x: torch.tensor([[x[0] > 0, x[1].int()]]),
    "small_integers": lambda x: torch.tensor([x[0].to(torch.uint8), -x[1].to(torch.int8)]),
    "half": lambda x: torch.tensor([x[0].long() + 4099, x[1].half()]),
    "float64": lambda x: torch.tensor([x[0].long(), x[1] > 0], dtype=torch.float64),
}


@pytest.mark.parametrize("name", MIXED)
def test_tensors_of_several_dtypes_in_a_list(name):
    x = torch.tensor([3.0, 2.0])
    torch.testing.assert_close(fx.capture(MIXED[name], x)(x), MIXED[name](x), rtol=0, atol=0)


def test_tensors_with_gradients_in_a_list():
    def program(x):
        made = torch.tensor([x[0], 2.0, x[1]])
        return made * x.sum(), made.requires_grad

    x = torch.tensor([3.0, 2.0], requires_grad=True)
    found, requires_grad = fx.optimize(fullgraph=True)(program)(x)
    expected, _ = program(x)
    assert not requires_grad
    torch.testing.assert_close(found, expected)
    assert torch.autograd.grad(found.sum(), x)[0].equal(torch.autograd.grad(expected.sum(), x)[0])


def test_an_integer_list_takes_no_float_tensor():
    with pytest.raises(TypeError, match="integer tensors"):
        fx.optimize()(lambda x: torch.tensor([x[0], x[1]], dtype=torch.int32))(torch.ones(2))
