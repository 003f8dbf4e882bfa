"""Values that half precision holds exactly: every operation against all numbers of the dtype, and what kernels round."""

import operator

import pytest
import torch
from inductor_checks import check

from fxstack_inductor.ir.exact_halves import KEEPING, exact
from fxstack_inductor.ir.expr import ZERO
from fxstack_inductor.ir.kernel import Compute, Constant, Load, Reduce
from fxstack_inductor.ir.scalar_ops import HALF_ROUNDINGS

HALVES = [torch.bfloat16, torch.float16]
FUNCTIONS = {name: getattr(torch, name) for name in KEEPING}
BINARY = {"maximum", "minimum", "fmax", "fmin", "copysign"}


def of(*values):
    """The dtypes that hold the last of ``values``; buffers are named like their dtypes."""
    known = []
    for _ in values:
        known.append(
            exact(values, known, {"bfloat16": HALVES[0], "float16": HALVES[1], "float32": torch.float32})
        )
    return known[-1]


def load(dtype):
    return Load(str(dtype)[6:], ZERO, torch.float32)


def every(dtype):
    return torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype).float()


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", sorted(KEEPING))
def test_operations_that_keep_digits(name, dtype):
    args = (0, 1) if name in BINARY else (0,)
    assert of(load(dtype), load(dtype), Compute(name, args, torch.float32)) == {dtype}
    x = every(dtype)
    for other in [x.flip(0), x.roll(77)][: len(args)]:
        got = FUNCTIONS[name](*([x, other][: len(args)]))
        torch.testing.assert_close(got.to(dtype).float(), got, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("op", HALF_ROUNDINGS)
def test_roundings_change_what_the_dtype_before_has(op, dtype):
    rounded = every(dtype).to(HALF_ROUNDINGS[op]).float()
    held = {
        d
        for d in HALVES
        if torch.equal(rounded.to(d).float().nan_to_num(7, 8, 9), rounded.nan_to_num(7, 8, 9))
    }
    assert of(load(dtype), Compute(op, (0,), torch.float32)) == held


def test_an_overflow_stays_infinite():
    check(lambda x: x.bfloat16().half().float() * 0.5, torch.tensor([65408.0, 65504.0, 1.0]).half())


@pytest.mark.parametrize("factor", [1.0, 2.0, -4.0, 0.5, 3.0])
def test_doubled_numbers(factor):
    values = (
        load(torch.bfloat16),
        Constant(repr(factor), torch.float32),
        Compute("mul", (1, 0), torch.float32),
    )
    x = every(torch.bfloat16)
    scaled = x * factor
    same = torch.equal(scaled.bfloat16().float().nan_to_num(), scaled.nan_to_num())
    assert (
        of(*values)
        == ({torch.bfloat16} if same else set())
        == of(*values[:2], Compute("mul", (0, 1), torch.float32))
    )
    assert of(load(torch.float16), values[1], values[2]) == set()


def test_constants():
    for number in (
        0.0,
        -0.0,
        1.0,
        0.1,
        257.0,
        2049.0,
        65504.0,
        65536.0,
        2**-24,
        2**-25,
        float("inf"),
        float("nan"),
    ):
        held = {d for d in HALVES if torch.tensor(number).to(d).item() == number or number != number}
        assert of(Constant(repr(number), torch.float32)) == held


def test_other_values():
    half, single = load(torch.float16), load(torch.float32)
    assert of(half, Reduce("max", (0,), torch.float32)) == {torch.float16}
    assert of(half, Reduce("sum", (0,), torch.float32)) == set()
    assert of(single) == of(half, Compute("add", (0, 0), torch.float32)) == set()
    assert of(single, Compute("round_bf16", (0,), torch.float32)) == {torch.bfloat16}
    assert of(half, Load("float16", ZERO, torch.float32, 0, 0)) == {torch.float16}
    assert of(half, single, Compute("where", (0, 0, 1), torch.float32)) == set()


@pytest.mark.parametrize("dtype", HALVES)
def test_values_are_rounded_once(dtype):
    """Operators before a comparison round as in eager: what is rounded already is stored and compared as it is."""
    x, y = (torch.randn(40, 70).to(dtype) for _ in range(2))

    def program(x, y):
        a = (x / (1 + y.abs())).relu()
        return torch.where(a > y, a, y * 2), (-a).maximum(y)

    c = check(program, x, y).lowered.c
    kernel = c[c.index("kernel_0_part(") :]
    assert kernel.count("bf16_round(" if dtype is torch.bfloat16 else "f16_load(f16_store(") == 2
    assert ("bf16_bits(" in kernel) == (dtype is torch.bfloat16)


def test_a_kernel_keeps_nan_and_infinities():
    x = (
        torch.tensor([float("nan"), float("inf"), -float("inf"), 3e38, -0.0, 1e-40])
        .repeat(9)
        .to(torch.bfloat16)
    )
    got = check(lambda x: (x.relu(), (x * 2).abs(), torch.where(x > 0, x * 2, -x)), x)(x)
    assert operator.eq(*(t.isnan().sum() for t in (got[0], x)))
