"""The order in memory of tensors that only kernels read."""

import pytest
import torch
from inductor_checks import check, kernels

from fxstack_inductor.codegen.c.strategy import strategy
from fxstack_inductor.ir.kernel import Load


def strategies(fn, *inputs):
    return [strategy(k) for k in kernels(check(fn, *inputs))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(40, 50), (17, 200)])
def test_a_softmax_along_transposed_memory_is_stored_along_it(shape, dtype):
    x = torch.randn(shape, dtype=dtype)
    assert strategies(lambda x: (x.t().softmax(0), (x.t().abs() + 1).log()), x) == ["rows", "tiles"]


def test_a_softmax_across_transposed_memory_is_stored_along_its_rows():
    assert strategies(lambda x: x.t().softmax(1), torch.randn(80, 50)) == ["turned_rows", "points"]


def test_halves_are_transposed_before_they_are_converted():
    assert strategies(lambda x: x.t().softmax(0), torch.randn(40, 50).bfloat16())[-1] == "points"


def columns_of(compiled):
    """The loops, by kernel, along which each access is contiguous that changes along the last outer loop."""
    found = []
    for kernel in kernels(compiled):
        last = kernel.outer[-1].var
        places = [v.index for v in kernel.values if isinstance(v, Load)] + [s.index for s in kernel.stores]
        found.append({place.coefficient(last).as_int() for place in places if last in place.variables})
    return found


@pytest.mark.parametrize(
    "norm",
    [
        lambda x: (x - x.mean(0)) / (x.std(0) + 1e-5),
        lambda x: x * (x.square().mean(1, keepdim=True) + 1e-5).rsqrt(),
        lambda x: (x - x.amax((0, 1))).exp(),
    ],
)
def test_results_across_transposed_memory_lie_like_it(norm):
    x = torch.randn(5, 6, 14, 20).transpose(-1, -2)
    steps = columns_of(check(lambda x: norm(x) + x.amax(-1, keepdim=True), x))
    assert steps == [{1}, {1}]


def test_results_across_memory_that_are_returned_keep_their_order():
    x = torch.randn(5, 6, 14, 20).transpose(-1, -2)
    check(lambda x: (x.mean(0), x - x.mean(0), (x.std(0) + 1) * 2), x)
    check(lambda x: (x.mean(0) @ x.mean(0).transpose(-1, -2), x - x.mean(0)), x)
    check(lambda x: (x - x.mean(0).transpose(-1, -2)).std(1) + x.transpose(-1, -2).mean((0, 1)), x[:, :, :14])


@pytest.mark.parametrize("dim", [0, 1])
def test_a_tensor_that_reductions_alone_read_lies_like_its_operands(dim):
    """A joined tensor is a copy along memory, and its reduction goes along memory or across, as the memory lies."""
    x = torch.randn(200, 90)
    joined = check(lambda x: torch.cat([(y := x.t())[:, 5:], y[:, :5]], 1).sum(dim), x)
    assert [strategy(k) for k in kernels(joined)] == ["points", "rows" if dim == 0 else "columns"]
    assert columns_of(joined)[0] == {1}


def test_batches_and_more_operands():
    x, y = torch.randn(3, 40, 50), torch.randn(3, 50, 40)
    check(lambda x, y: (x.transpose(1, 2) + y.transpose(1, 2)).softmax(1), x, x.cos())
    check(lambda x, y: (x.transpose(1, 2) + y).softmax(1), x, y)
    check(lambda x: x.transpose(1, 2).expand(2, 3, 50, 40).softmax(2), x)
    check(lambda x: x[:, 1:-1, ::2].transpose(1, 2).softmax(1), x)
    check(lambda x: x.transpose(1, 2).unsqueeze(1).softmax(2) * 2, x)


def test_symbolic_sizes():
    others = [(torch.randn(n, 30),) for n in (1, 8, 100)]
    check(lambda x: x.t().softmax(0), *others[2], symbolic=True, others=others)
