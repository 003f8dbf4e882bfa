"""Elementwise operators: values, promotion and special numbers as in eager."""

import functools

import pytest
import torch
from inductor_checks import FAST, check, check_gradients, externs, fused, trace

import fxstack_inductor as fi

F = torch.nn.functional
X = torch.linspace(-4, 4, 60).reshape(3, 20)
SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3e38])
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]

UNARY = (
    "exp exp2 expm1 sin cos tan sinh cosh tanh atan asinh erf erfc sigmoid neg abs sign floor ceil trunc round "
    "square relu reciprocal isnan isinf logical_not rsqrt sqrt log log1p log2 log10"
).split()


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    assert fused(check(getattr(torch, name), X.abs() if "sqrt" in name or "log" in name else X))


def test_special_numbers():
    names = "exp tanh erf sigmoid neg abs sign floor relu reciprocal isnan isinf sqrt log".split()
    check(lambda x: tuple(getattr(torch, n)(x) for n in names), SPECIAL)


def test_extremes_keep_nan_on_either_side():
    a = SPECIAL.repeat(9)
    b = SPECIAL.repeat_interleave(9)
    check(lambda a, b: (torch.maximum(a, b), torch.minimum(a, b), a.clamp(-1, 1)), a, b)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_arithmetic(dtype):
    x, y = X.to(dtype), (X.flip(0) + 0.3).to(dtype)
    check(lambda x, y: (x + y, x - y * 2, x * y, x / y, y - x, x**2, x**3, x**0.5, x.add(y, alpha=3)), x, y)


@pytest.mark.parametrize("dtype", INTS)
def test_integers_wrap_around(dtype):
    top = torch.iinfo(dtype).max
    x = torch.tensor([0, 1, 5, top, top - 1, 7], dtype=dtype)
    check(lambda x: (x + x, x * x, x - 3, x * 7, ~x, x & 5, x | 5, x ^ 5, x > 3, x.sum(), -x), x)


def test_booleans():
    p, q = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    check(lambda p, q: (p + q, p * q, p & q, p | q, p ^ q, ~p, p == q, p.sum(), p + 1, p * 2.5), p, q)


@pytest.mark.parametrize("left", [*FLOATS, torch.int64, torch.int8, torch.bool])
@pytest.mark.parametrize("right", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
def test_promotion(left, right):
    x = torch.tensor([0, 1, 2, 3]).to(left)
    y = torch.tensor([1, 0, 2, 1]).to(right)
    zero_d = torch.tensor(2).to(right)
    check(
        lambda x, y, z: (x + y, x * z, x + 1, x * 2.5, x == y, x < z, x / 2, torch.where(x > 0, x, y)),
        x,
        y,
        zero_d,
    )


def test_division_modes():
    x = torch.tensor([7.0, -7.0, 0.0, -0.0, 5.5, -5.5, 1e10])
    for y in (2.0, -2.0, 0.3):
        check(
            lambda x: (
                torch.div(x, y, rounding_mode="floor"),
                torch.div(x, y, rounding_mode="trunc"),
                x % y,
                x.fmod(y),
            ),
            x,
        )
    n = torch.tensor([7, -7, 0, 5, -5])
    check(lambda n: (n // 3, n // -3, torch.div(n, 3, rounding_mode="trunc")), n)


def test_integer_division_by_zero_raises_what_eager_raises():
    def divide(x, y):
        return x // y

    x, y = torch.tensor([1, 2]), torch.tensor([1, 0])
    compiled = check(divide, x, torch.tensor([1, 2]))
    with pytest.raises(RuntimeError) as wanted:
        divide(x, y)
    with pytest.raises(RuntimeError, match=str(wanted.value)):
        compiled(x, y)


def test_conversions():
    x = torch.tensor([0.0, 0.4, 1.6, -2.7, 100.0])
    kinds = [torch.int64, torch.int32, torch.int8, torch.bool, torch.float64, torch.bfloat16, torch.float16]
    check(lambda x: tuple(x.to(kind) for kind in kinds), x)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
def test_integers_made_of_floats_are_no_truncated_floats(dtype):
    values = [-0.5, -0.0, 0.7, 3e9, -3e9, 1e20, 300.0, -130.0, float("nan"), float("inf")]
    x = torch.tensor(values * 8)
    for made in (x, x.double(), x.bfloat16()):
        back = made.dtype
        check(lambda x: (x.to(dtype).to(back) * 1, 1 / x.to(dtype).to(back)), made)  # noqa: B023


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("bounds", [(None, 6e4), (-6e4, 6e4), (-1e20, 1e20)])
def test_bounds_beyond_the_integers_are_converted_as_the_processor_does(source, bounds):
    if source is torch.float16 and bounds[1] > 6e4:
        pytest.skip("float16 has no such numbers")
    x = torch.tensor([float("inf"), -float("inf"), 1e30, -1e30, 7e4, 3.5, -0.0] * 6).to(source)
    options = fi.InductorOptions(use_cache=False)
    check(
        lambda x: tuple(y.to(i) for y in (x.clamp(*bounds), x.nan_to_num(1)) for i in INTS),
        x,
        options=options,
    )


def test_casts_that_the_user_writes_round():
    x = torch.randn(100)
    assert fused(check(lambda x: x.to(torch.bfloat16).float() - x, x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_eager_rounding_is_bitwise_eager(dtype):
    x, y = torch.randn(2, 1000).to(dtype)
    graph = torch.fx.experimental.proxy_tensor.make_fx(
        lambda x, y: ((x * y + x) / (y * y + 1)) - x, tracing_mode="fake"
    )(x, y)
    options = fi.InductorOptions(eager_rounding=True, optimization=1, use_cache=False)
    (got,) = (fi.compile_graph(graph, (x, y), options)(x, y),)
    assert torch.equal(got[0], graph(x, y))


NUMBERS = {
    "comparisons": lambda x, s: (x < s, x <= s, x == s, x != s, x > s, x >= s),
    "sums": lambda x, s: (x + s, x - s, s - x, torch.rsub(x, s)),
    "products": lambda x, s: (x * s, x / s),
    "divisions": lambda x, s: (x // s, x % s, torch.fmod(x, s), s % x),
    "truncated": lambda x, s: (torch.div(x, s, rounding_mode="trunc"),),
    "chosen": lambda x, s: (torch.where(x > 0, x, s) < s, x.masked_fill(x > 0, s) == s),
    "filled": lambda x, s: (torch.full_like(x, s) == s, x.new_full((3,), s) == s),
    "bounds": lambda x, s: (x.clamp(min=s), F.hardshrink(x, abs(s)), F.threshold(x, s, s)),
    "tensors": lambda x, s: (x * torch.tensor(s), x + torch.tensor(s), x < torch.tensor(s)),
    "integers": lambda x, s: (x + torch.tensor([257]) - 256, x * 257),
    "roots": lambda x, s: ((x * 0 * s) ** 0.5, x**0, x**2),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_beside_half_precision_are_rounded_where_eager_rounds_them(dtype):
    numbers = (0.3, -0.7, 1 / 3, 3.1)
    x = torch.cat([torch.randn(180) * 3, torch.tensor([*numbers, 1.5, -0.0, 100, -2, 7])])
    x = x.repeat_interleave(64).to(dtype)  # whole vectors of equal numbers: eager's tails round otherwise
    options = fi.InductorOptions(optimization=1, use_cache=False, eager_rounding=True)

    def together(x):
        return [result for f in NUMBERS.values() for n in numbers for result in f(x, n)]

    names = [f"{name} of {n}: " for name, f in NUMBERS.items() for n in numbers for _ in f(x, n)]
    got = fi.compile_graph(trace(together, x), (x,), options)(x)
    for name, ours, theirs in zip(names, got, together(x)):
        torch.testing.assert_close(
            ours, theirs, rtol=0, atol=0, equal_nan=True, msg=functools.partial(str.__add__, name)
        )


def test_signs_of_zero_are_eager_s():
    a, b = torch.tensor([0.0, -0.0, 0.0, -0.0] * 8), torch.tensor([-0.0, 0.0, 0.0, -0.0] * 8)
    names = "relu relu6 hardtanh".split()
    pairs = (torch.fmax, torch.fmin, torch.copysign, torch.Tensor.clamp_min, torch.Tensor.clamp_max)

    def signs(a, b):
        ones = (*(getattr(F, name)(a) for name in names), a.clamp(min=0), a.clamp(0, 1), -a, a.half() ** 0.5)
        return tuple(x.signbit() for x in (*ones, *(f(a, b) for f in pairs)))

    check(signs, a, b)


@pytest.mark.parametrize("exponent", [0.5, -0.5, 1.5, 2.5, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_powers_of_special_numbers(dtype, exponent):
    x = torch.tensor([0.0, -0.0, float("-inf"), float("inf"), -2.0, 2.0] * 16).to(dtype)
    check(lambda x: (x**exponent, (x**exponent).signbit() & (x > -1)), x)


def test_infinity_beside_nan_has_a_length():
    check(torch.hypot, SPECIAL.repeat(9), SPECIAL.repeat_interleave(9))


def test_eager_s_sixth_is_one_of_single_precision():
    check_gradients(F.hardsigmoid, X.double())


ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "softplus": F.softplus,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "mish": F.mish,
    "relu6": F.relu6,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    assert fused(check(ACTIVATIONS[name], X))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_gradient(name):
    check_gradients(lambda x: ACTIVATIONS[name](x), X)


@pytest.mark.parametrize("eps", [None, 1e-3, 0.1])
@pytest.mark.parametrize("dtype", FLOATS)
def test_bounds_of_logit_have_the_precision_of_the_tensor(dtype, eps):
    x = torch.tensor([-0.5, 0.0, 1e-4, 1e-3, 0.1, 0.5, 0.9, 0.999, 0.9999, 1.0, 1.5]).to(dtype)
    check(lambda x: torch.logit(x, eps), x)


def test_broadcasting():
    check(lambda a, b, c: a + b * c, torch.randn(4, 1, 5), torch.randn(3, 1), torch.randn(()))


def test_strides_of_results_are_eager_s():
    last = torch.randn(2, 8, 5, 6).to(memory_format=torch.channels_last)
    check(lambda x: (x + 1, x.permute(0, 2, 3, 1) * 2, x.sum(1), x.contiguous()), last)
    check(lambda x: x * 2, torch.randn(6, 5).t())


def test_what_has_no_rule_is_called():
    compiled = check(
        lambda x: torch.special.i0(x) + torch.linalg.inv(x), torch.randn(4, 4) + 3 * torch.eye(4)
    )
    assert any("linalg_inv" in name for name in externs(compiled))


def test_complex_numbers_are_left_to_aten():
    check(lambda x: torch.view_as_real(torch.view_as_complex(x) * 2j) + 1, torch.randn(5, 2))


def test_empty_and_zero_dimensional():
    check(lambda x, y: (x + 1, x.sum(), x.sum(0), y * 2), torch.randn(0, 4), torch.tensor(3.0))


def test_options_are_used():
    assert FAST.optimization == 1


def test_labels_behind_the_first_that_is_none_count_nothing():
    labels = torch.tensor([[1, 0, -1, 0, 0], [-1, 4, 4, 4, 4], [3, 2, 1, 0, 4]])
    loss = functools.partial(F.multilabel_margin_loss, reduction="none")
    check(loss, torch.randn(3, 5), labels)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_bounds_outside_of_an_integer_dtype_change_nothing(dtype):
    x = torch.tensor([0, 1, 100, torch.iinfo(dtype).max, torch.iinfo(dtype).min], dtype=dtype)
    check(
        lambda x: (x.clamp(-(2**40), 2**40), x.clamp(min=-(2**33)), x.clamp(max=2**33), x.clamp(-5, 300)), x
    )


@pytest.mark.parametrize("bounds", [{"min": 300}, {"max": -5}, {"min": 2**40}])
def test_bounds_for_which_eager_raises_are_left_to_aten(bounds):
    graph = trace(lambda x: x.clamp(max=7), torch.ones(2, dtype=torch.uint8))
    (node,) = (n for n in graph.graph.nodes if n.op == "call_function")
    node.args, node.kwargs = (node.args[0], bounds.get("min"), bounds.get("max")), {}
    node.target = torch.ops.aten.clamp.default
    graph.recompile()
    with pytest.raises(RuntimeError, match="outside the representable range of Byte"):
        fi.compile_graph(graph, (), FAST)(torch.ones(2, dtype=torch.uint8))
