"""Reductions whose operands lie across memory: transposed copies of blocks of rows, of every element size."""

import re

import pytest
import torch
from inductor_checks import check, kernels

from fxstack_inductor.codegen.c.strategy import strategy
from fxstack_inductor.codegen.c.text import STACK

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int16, torch.int8]


def strategies(fn, *inputs, **options):
    return [strategy(k) for k in kernels(check(fn, *inputs, **options))]


def turned(fn, *inputs, **options):
    assert set(strategies(fn, *inputs, **options)) <= {"turned_rows", "short_rows"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(8, 8), (33, 17), (64, 96), (75, 130)])
def test_products_of_transposed_operands(dtype, shape):
    x, y = ((torch.rand(s) * 20 - 10).to(dtype) for s in (shape, shape[::-1]))
    turned(lambda x, y: (x.t() * y).amax(-1), x, y)
    turned(lambda x, y: (x.t().double() * y.double()).sum(-1), x, y)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: (x.t() + y).softmax(-1),
        lambda x, y: (x.t() + y).argmax(-1),
        lambda x, y: torch.var_mean(x.t() + y.exp(), -1),
        lambda x, y: (x.t() * y).sum(-1) + (x.t() + y).amin(-1),
        lambda x, y: torch.nn.functional.layer_norm(x.t() * y, (48,)) + y,
        lambda x, y: (x.t() * y).sum(0),
    ],
)
def test_passes(fn):
    turned(fn, torch.randn(48, 40), torch.randn(40, 48))


def test_batches():
    turned(lambda x, y: (x.transpose(-1, -2) * y).sum(-1), torch.randn(3, 33, 20), torch.randn(3, 20, 33))
    turned(lambda x, y: (x.transpose(0, 1) * y).sum(1), torch.randn(33, 20), torch.randn(20, 33))


def test_rows_too_long_for_the_stack_are_read_in_place():
    x = torch.randn(5000, 9)
    assert strategies(lambda x, y: (x.t() * y).amax(-1), x, torch.randn(9, 5000)) == ["rows"]


def test_a_mutated_operand():
    def f(x, y):
        total = (x.t() + y).sum(-1, keepdim=True)
        y.add_(total)
        return total * 2

    check(f, torch.randn(24, 40), torch.randn(40, 24))
    check(lambda x: x.copy_((x.t() + x).softmax(-1)), torch.randn(40, 40))


def test_symbolic_rows():
    others = [(torch.randn(40, n), torch.randn(n, 40)) for n in (1, 8, 100)]
    check(lambda x, y: (x.t() * y).sum(-1), *others[2], symbolic=True, others=others)


PIECES = [
    lambda x, y: (x.t() * y).sum(-1),
    lambda x, y: ((x.t() + y).amax(-1), (x.t() * y).amin(-1)),
    lambda x, y: (x.t() * y + y[:, :1].exp()).sum(-1) + y[:, 0],
    lambda x, y: ((x.t() > y).any(-1), (x.t().double() * y).prod(-1)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16])
@pytest.mark.parametrize("columns", [288, 320, 1056])
@pytest.mark.parametrize("fn", PIECES)
def test_one_pass_needs_a_piece_of_the_rows(fn, columns, dtype):
    x, y = ((torch.rand(s) * 2 + 0.2).to(dtype) for s in ((columns, 75), (75, columns)))
    assert "piece +=" in check(fn, x, y).lowered.c


def test_long_sums_in_pieces_are_exact():
    x = torch.rand(8192 + 64, 9) + 1
    compiled = check(lambda x, y: (x.t() * y).sum(-1), x, x.t().contiguous())
    assert "piece +=" in compiled.lowered.c
    got = compiled(x, x.t().contiguous())[0]
    torch.testing.assert_close(got.double(), (x.double() ** 2).sum(0), rtol=2e-7, atol=0)


@pytest.mark.parametrize("count", [2, 20, 40])
def test_lanes_of_many_reductions_fit_into_the_stack(count):
    def many(x, y):
        return tuple((x.t() * (k + 2) - y).amax(-1) for k in range(count))

    x = torch.randint(-9, 9, (512, 640))
    text = check(many, x, x.t().contiguous()).lowered.c
    assert ("piece +=" in text) == (count < 30)
    arrays = re.findall(r"(?:lane|turned)\d+\[(\d+)\]\[(\d+)\]", text)
    assert 0 < sum(int(rows) * int(columns) * 8 for rows, columns in arrays) <= STACK
