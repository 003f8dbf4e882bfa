"""Values that several passes need: which are kept in stack arrays, along memory and across it."""

import pytest
import torch
from inductor_checks import check

X = torch.randn(70, 48)


def body(fn, *inputs, **options):
    return check(fn, *inputs, **options).lowered.c.partition("void kernel_0")[2]


@pytest.mark.parametrize("dim", [-1, 0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_exponential_is_computed_once(dim, dtype):
    text = body(lambda x: x.softmax(dim), X.to(dtype))
    assert text.count("exp") == 1
    assert "kept" in text or (dim == -1 and "row" in text)


def test_roundings_and_divisions_are_computed_once():
    x, y = (torch.randn(50, 56).bfloat16() for _ in range(2))
    text = body(
        lambda x, y: (lambda z: (z - z.mean(-1, keepdim=True)) / z.std(-1, keepdim=True))(x / (1 + y.abs())),
        x,
        y,
    )
    assert text.count("fabsf(") == 1


def test_cheap_values_are_computed_again():
    assert "row" not in body(lambda x: x * 2 - (x * 2).amax(-1, keepdim=True), X)


def test_a_scan_beside_a_reduction_is_computed_once():
    text = body(
        lambda x: (lambda y: y * (y.square().mean(-1, keepdim=True) + 1).rsqrt())(x.cumsum(-1)),
        torch.randn(70, 300),
    )
    assert text.count("state") > 0
    assert "row" in text


def test_a_scan_of_tiles_beside_a_reduction():
    def f(x):
        y = (x.sin().exp() + x.cos()).cummax(-1).values
        return (y.sigmoid() - y.mean(-1, keepdim=True)), y.amin(-1)

    body(f, torch.randn(20, 300))


@pytest.mark.parametrize("rows", [300, 1000, 3000])
def test_tiles_across_memory_become_narrower(rows):
    body(lambda x: (x.softmax(0), x.exp().amax(0)), torch.randn(rows, 130))


def test_several_loops_across_memory():
    body(lambda x: x.softmax(0) + x.exp().sum((0, 1), keepdim=True), torch.randn(9, 30, 41))
    body(lambda x: x.exp() - x.exp().amax((0, 1), keepdim=True), torch.randn(9, 30, 41))


def test_symbolic_rows_keep_nothing():
    body(lambda x: x.softmax(-1), X, symbolic=True, others=[(torch.randn(3, 100),)])
