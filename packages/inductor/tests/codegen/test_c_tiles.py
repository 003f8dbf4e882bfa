"""Transposed memory: tiles that are turned over on the stack, for every element size and for sizes that tiles do not divide."""

import pytest
import torch
from inductor_checks import check, kernels

from fxstack_inductor.codegen.c.pointwise.far_reads import along_far_reads
from fxstack_inductor.codegen.c.strategy import strategy

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def turned(fn, *inputs, **options):
    compiled = check(fn, *inputs, **options)
    assert [strategy(k) for k in kernels(compiled)] == ["tiles"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(8, 8), (33, 17), (64, 96), (130, 75), (165, 300)])
def test_transposition(dtype, shape):
    x = (torch.rand(shape) * 100 - 50).to(dtype)
    turned(lambda x: x.t().contiguous(), x)


@pytest.mark.parametrize("shape", [(33, 70), (16, 32)])
def test_with_something_that_lies_along(shape):
    turned(lambda a, b: a.t() * 2 + b, torch.randn(shape), torch.randn(shape[::-1]))


def test_several_across():
    """The result alone goes through a transposed copy."""
    fn = lambda a, b: (a.t() + b.t()).contiguous()
    turned(fn, torch.randn(40, 50), torch.randn(40, 50))
    text = check(fn, torch.randn(40, 50), torch.randn(40, 50)).lowered.c
    text = text.partition("void kernel_0")[2]
    assert "joined0[" in text and "turned" not in text


@pytest.mark.parametrize(("points", "last"), [(3, 60), (9, 9)])
def test_points_go_along_the_loop_of_most_accesses_unless_it_is_short(points, last):
    x, y = torch.randn(60, points), torch.randn(60, points)
    (kernel,) = kernels(check(lambda x, y: (x.t() + y.t()).contiguous(), x, y))
    assert kernel.outer[-1].extent.as_int() == last


def test_more_across_than_fit_on_the_stack():
    def f(*xs):
        return sum(x.t() for x in xs).contiguous()

    turned(f, *(torch.randn(20, 30) for _ in range(10)))


@pytest.mark.parametrize("dtype", DTYPES[:-1])
@pytest.mark.parametrize("shape", [(33, 17), (64, 96), (300, 90)])
def test_flipped_rows(shape, dtype):
    x, y = ((torch.rand(shape) * 100 - 50).to(dtype) for _ in range(2))
    turned(lambda x, y: torch.maximum(x, y.flip(0)), x, across(y))
    turned(lambda x: x.flip(0, 1).t().contiguous(), x)
    turned(lambda x: x.flip(1).t().contiguous(), x)
    check(lambda x, y: (x.flip(1) - x.amax(1, keepdim=True), y.flip(0).amax(1)), x, across(y))


def test_channels_last():
    x = torch.randn(2, 12, 5, 7)
    turned(lambda x: (x + 1).contiguous(memory_format=torch.channels_last), x)


def test_batches_of_matrices():
    turned(lambda x: x.transpose(1, 3).contiguous(), torch.randn(2, 9, 3, 11))


def test_symbolic_sizes():
    others = [(torch.randn(s),) for s in ((3, 100), (64, 64), (41, 2))]
    turned(lambda x: x.t().contiguous() + 1, torch.randn(20, 30), symbolic=True, others=others)


def test_across_in_a_window_of_a_larger_tensor():
    turned(lambda x: x[3:30, 5:40].t().contiguous(), torch.randn(50, 60))


def test_what_is_the_same_along_the_last_loop_is_not_turned_over():
    compiled = check(lambda a, b: a * b, torch.randn(64, 64), torch.randn(64, 1))
    assert [strategy(k) for k in kernels(compiled)] == ["points"]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.cat([x[..., 5:], x[..., :5]], -1),
        lambda x: x.roll(12, -1) * 2,
        lambda x: torch.cat([x, x + 1], -1),
        lambda x: torch.nn.functional.pad(x, (9, 2)),
    ],
)
@pytest.mark.parametrize("shape", [(33, 70), (100, 12)])
def test_parts_of_the_last_loop(fn, shape):
    turned(lambda x: fn(x.t()).contiguous(), torch.randn(shape))


def test_conditions_on_rows_are_decided_outside_of_the_vector_loop():
    x, y = torch.randn(2, 3, 40, 24), torch.randn(2, 3, 24, 40)
    turned(lambda x, y: torch.nn.functional.avg_pool2d(x, 3, 1, 1) + y.transpose(2, 3), x, y)


@pytest.mark.parametrize("fn", [lambda x: x, lambda x: (x.exp(), x * 2)[0].contiguous()])
@pytest.mark.parametrize("shape", [(9, 8, 14, 14), (2, 17, 5, 9), (1, 8, 30, 4)])
@pytest.mark.parametrize("pool", [torch.nn.functional.max_pool2d, torch.nn.functional.avg_pool2d])
def test_rows_between_conditions_have_none(fn, shape, pool):
    x = torch.randn(shape).contiguous(memory_format=torch.channels_last)
    text = check(lambda x: fn(pool(x.clamp(-1, 1), 3, 1, 1)), x).lowered.c
    assert " ? a0_" not in text.partition("void kernel_0")[2]


def test_windows_are_vectors():
    compiled = check(
        lambda x: torch.nn.functional.max_pool2d(x.clamp(-1, 1), 3, 1, 1), torch.randn(2, 3, 20, 40)
    )
    assert "FUNCTION_BEGIN STRAIGHT" in compiled.lowered.c


def across(x):
    """Return a tensor of the values of ``x`` whose columns are contiguous."""
    return x.t().contiguous().t()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(33, 17), (64, 96), (130, 75)])
def test_stores_across(dtype, shape):
    x, y = ((torch.rand(shape) * 100 - 50).to(dtype) for _ in range(2))
    turned(lambda x, y: (x.clone(), torch.maximum(x, y)), x, across(y))
    compiled = check(lambda x, y: (torch.maximum(x, y), torch.minimum(y, x)), x, across(y))
    assert "joined" in compiled.lowered.c


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [2, 3])
def test_elements_across_that_lie_apart(dtype, step):
    x, y = (torch.rand(n, 45) * 100 - 50 for n in (50, 50 * step))
    turned(lambda x, y: torch.maximum(x, y), x.to(dtype), y.t().contiguous().t().to(dtype)[::step])


@pytest.mark.parametrize("shift", [3, -9])
def test_rows_that_wrap_around(shift):
    x, y, z = torch.randn(40, 70), torch.randn(40, 70), torch.randn(40, 70)
    turned(lambda x, y: x + y.roll(shift, 0), x, across(y))
    turned(lambda x, y: (x + y.roll(shift, 0)).exp(), x, across(torch.randn(80, 70))[::2])
    compiled = check(lambda x, y, z: x.roll((shift, 5), (0, 1)) + y.roll(2, 0) * z, x, across(y), across(z))
    assert "remainder" not in compiled.lowered.c.partition("void kernel_0")[2]


def test_stores_across_beside_conditions_on_rows():
    x, y = torch.randn(2, 3, 40, 24), torch.randn(2, 3, 24, 40).transpose(2, 3)
    fn = lambda x, y: (torch.nn.functional.avg_pool2d(x, 3, 1, 1) + y, y * 2, torch.cat([y, x], 2))
    check(fn, x, y)
    check(lambda x, y: (torch.nn.functional.pad(x, (2, 1, 1, 3)), y + x), x, y)


def test_stores_across_of_symbolic_sizes():
    others = [(torch.randn(s), across(torch.randn(s))) for s in ((3, 100), (64, 64), (41, 2))]
    fn = lambda x, y: (x + y, x * 2, y * 3)
    check(fn, torch.randn(20, 30), across(torch.randn(20, 30)), symbolic=True, others=others)


def test_operands_across_that_are_overwritten():
    def fn(x, y):
        y.mul_(x + 1)
        x.add_(y)
        return x - y

    check(fn, torch.randn(40, 70), across(torch.randn(40, 70)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_reads_at_places_from_memory_are_contiguous_along_the_vector_loop(dtype):
    x, row, order = (torch.randn(70, 90) * 9).to(dtype), torch.arange(70).to(dtype), torch.randperm(90)
    place = torch.randint(90, (70, 90))
    fn = lambda x, row, order: x[..., order] * row[:, None]
    compiled = check(fn, across(x), row, order)
    turned = along_far_reads(kernels(compiled)[0])
    assert [loop.extent.as_int() for loop in turned.outer] == [90, 70]
    assert "joined0[" in compiled.lowered.c
    assert "joined0[" not in check(fn, x, row, order).lowered.c
    assert "joined0[" not in check(lambda x, place: x.gather(1, place) * 2, across(x), place).lowered.c
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        compiled(across(x), row, order + 1)
