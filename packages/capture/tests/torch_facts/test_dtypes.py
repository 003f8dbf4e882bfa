"""Eager's refusals of dtypes, and the dtypes that it returns, hold for a trace's fake tensors: word for word."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from fxstack_capture import optimize
from fxstack_capture.torch_side.fakes.fake_mode import CaptureFakeMode
from fxstack_interchange.torch_facts.dtypes import (
    convert_dtypes,
    eager_dtypes,
    have_other_dtypes,
    returned_dtypes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

DTYPES = (torch.bool, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)
PAIRS = [*itertools.product(DTYPES, repeat=2), (torch.float32, torch.complex64)]
F = torch.nn.functional

INDEX = [0, 1, 2, 3]
BINARY = """mul_ add_ sub_ div_ pow_ atan2_ copysign_ fmod_ remainder_ xlogy_ logical_and_ eq_ lt_ bitwise_and_ hypot_
    heaviside_ nextafter_ floor_divide_ float_power_ clamp_min_ gcd_ add mul bitwise_or heaviside lt fmax lcm dot
    outer""".split()
UNARY = "sqrt_ exp_ sigmoid_ round_ sin_ erfinv_ cumsum cumprod_ neg bitwise_not logical_not_".split()
CALLS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    **{name: lambda a, b, name=name: getattr(a, name)(b) for name in BINARY},
    **{name: lambda a, b, name=name: getattr(a, name)(*(0,) * name.startswith("cum")) for name in UNARY},
    "lerp_": lambda a, b: a.lerp_(b, 0.5),
    "addcmul_": lambda a, b: a.addcmul_(b, b),
    "addcdiv": lambda a, b: a.addcdiv(b, b),
    "masked_scatter_": lambda a, b: a.masked_scatter_(torch.tensor([True]), b),
    "index_add_": lambda a, b: a.index_add_(0, torch.tensor(INDEX), b),
    "index_copy": lambda a, b: a.index_copy(0, torch.tensor(INDEX), b),
    "scatter_add_": lambda a, b: a.scatter_add_(0, torch.tensor(INDEX), b),
    "put_": lambda a, b: a.put_(torch.tensor(INDEX), b),
    "addmm_": lambda a, b: a.view(2, 2).addmm_(b.view(2, 2), b.view(2, 2)),
    "binary_cross_entropy": F.binary_cross_entropy,
    "weighted": lambda a, b: F.binary_cross_entropy(a, a, b),
    "huber_loss": F.huber_loss,
    "soft_margin_loss": lambda a, b: F.soft_margin_loss(a, b, reduction="none"),
    "layer_norm": lambda a, b: F.layer_norm(a, (4,), b),
    "group_norm": lambda a, b: F.group_norm(a.view(1, 4), 2, b),
    "batch_norm": lambda a, b: F.batch_norm(a.view(1, 4, 1), b, b + 1, training=False),
    "prelu": lambda a, b: F.prelu(a.view(1, 4), b),
    "cross": lambda a, b: torch.linalg.cross(a[:3], b[:3]),
    "class weights": lambda a, b: F.nll_loss(a.view(1, 4), torch.tensor([0]), b),
    "targets": lambda a, b: F.nll_loss(a.view(4, 1), b - 1),
    "normal": torch.normal,
    "normal by a generator": lambda a, b: torch.normal(a, b, generator=torch.Generator()),
    "binomial": torch.binomial,
    "bernoulli": lambda a, b: torch.bernoulli(a),
    "poisson": lambda a, b: torch.poisson(a),
    "out": lambda a, b: torch.add(a, a, out=b),
    "overlapping out": lambda a, b: torch.add(a, a, out=b[:1].expand(4)),
}


def outcome(call: Callable[[Tensor, Tensor], Any], dtypes: tuple[torch.dtype, ...]) -> object:
    try:
        return call(*(torch.ones(4).to(dtype) for dtype in dtypes)).dtype
    except (RuntimeError, TypeError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", CALLS)
def test_dtypes_are_eagers(name: str) -> None:
    wanted = {pair: outcome(CALLS[name], pair) for pair in PAIRS}
    with CaptureFakeMode():
        got = {pair: outcome(CALLS[name], pair) for pair in PAIRS}
    assert got == wanted


def test_asking_draws_no_numbers_of_the_program() -> None:
    before = torch.get_rng_state()
    with CaptureFakeMode():
        torch.normal(torch.ones(3), torch.ones(3, dtype=torch.float64))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (lambda x: x & x, torch.float32),
        (lambda x: x.softmax(0), torch.int64),
        (lambda x: x.cumsum_(0), torch.bool),
        (lambda x: x.clamp(0, 1), torch.complex64),
    ],
)
def test_what_no_kernel_implements_is_eagers_exception_in_one_graph(
    call: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    argument = torch.ones(3).to(dtype)
    with pytest.raises(NotImplementedError) as eager:
        call(argument)
    with pytest.raises(NotImplementedError, match=re.escape(str(eager.value))):
        optimize(fullgraph=True)(call)(argument)


@pytest.mark.parametrize("module", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_operators_that_do_not_check_sizes_are_not_called_on_small_ones(
    module: type[torch.nn.RNNBase],
) -> None:
    assert not any(
        eager_dtypes(func, (torch.ones(3, 4), torch.ones(16, 4)), {})
        for func in (torch.ops.aten.lstm.input, torch.ops.aten.gru_cell.default)
    )
    layers = module(4, 8, 2, batch_first=True, bidirectional=True)
    x = torch.randn(2, 5, 4)
    torch.testing.assert_close(optimize(fullgraph=True)(layers)(x)[0], layers(x)[0])


@pytest.mark.parametrize("asked", [[True, True, True], [False, True, False]])
def test_gradients_of_a_norm_over_nothing_have_the_weights_dtype(asked: list[bool]) -> None:
    """torch's fake kernel gives those of an empty batch the dtype of the batch."""
    batch, statistics = torch.zeros(0, 4, dtype=torch.bfloat16), torch.zeros(0, 1)
    func, weight = torch.ops.aten.native_layer_norm_backward.default, torch.ones(4)
    args = (batch, batch, [4], statistics, statistics, weight, weight, asked)
    want = tuple(None if x is None else x.dtype for x in func(*args))
    assert returned_dtypes(func, args, {}) == want
    assert have_other_dtypes((batch, batch, batch), want)
    kept = [x for x in convert_dtypes((batch, batch, batch), want) if x.dtype is torch.float32]
    assert len(kept) == want.count(torch.float32)
