"""Reductions across memory: which kernels they are, few rows and many, and indices that all columns share."""

from dataclasses import replace

import pytest
import torch
from inductor_checks import FAST, check, kernels, trace

import fxstack_inductor as fi
from fxstack_inductor.codegen.c.strategy import function_text, strategy
from fxstack_inductor.ir.kernel import Load


def columns(fn, *inputs, **options):
    compiled = check(fn, *inputs, **options)
    assert [strategy(k) for k in kernels(compiled)] == ["columns"]
    return compiled


@pytest.mark.parametrize("rows", [2, 63, 64, 65, 256, 600])
@pytest.mark.parametrize("op", ["sum", "amax", "prod", "any"])
def test_rows(op, rows):
    x = torch.rand(rows, 40) + 0.5 - (op == "any") * 0.49
    columns(lambda x: getattr(x > 0.5 if op == "any" else x, op)(0), x)


def test_a_sum_of_many_rows_is_as_exact_as_one_in_double():
    x = torch.rand(20_000, 32) + 1
    got = check(lambda x: x.sum(0), x)(x)[0]
    torch.testing.assert_close(got.double(), x.double().sum(0), rtol=2e-7, atol=0)


def test_two_loops_of_rows():
    columns(lambda x: x.sum((0, 1)), torch.randn(5, 70, 33))


@pytest.mark.parametrize("op", ["sum", "mean", "amax"])
def test_bags_of_rows(op):
    table, bags = torch.randn(50, 70), torch.randint(-50, 50, (6, 8))
    compiled = columns(lambda w, i: getattr(w[i], op)(1), table, bags)
    (kernel,) = kernels(compiled)
    bags[3, 5] = 50
    with pytest.raises(IndexError, match="index 50 is out of bounds"):
        compiled(table, bags)
    assert kernel.checked


def test_weighted_bags():
    def f(w, i, s):
        return (torch.nn.functional.embedding(i, w) * s.unsqueeze(-1)).sum(1)

    columns(f, torch.randn(50, 70), torch.randint(0, 50, (6, 8)), torch.randn(6, 8))


def test_values_of_a_column_are_computed_once_for_all_rows():
    x, shift = torch.randn(40, 33), torch.randn(33)
    compiled = columns(
        lambda x, b: (x - x.mean(0)) / (x.std(0) + 1e-5) + (b.exp() + x.amax(0)).sin(), x, shift
    )
    passes = compiled.lowered.c.partition("void kernel_0(")[2].split("for (int64_t r0")[1:]
    bodies = [text.partition("\n    }\n")[0] for text in passes]
    assert len(bodies) == 2
    assert not any(f"{name}(" in body for body in bodies for name in ("sqrt", "expf", "sinf"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_columns_are_neighbours_in_the_largest_tensors(dtype):
    """The result of the reduction lies in another order than the operand, but is a ninth of its size."""
    x = (torch.rand(9, 4, 28, 30) * 9).to(dtype).transpose(-1, -2)
    (kernel,) = kernels(columns(lambda x: (x.amax(0), x * 2 + 1), x))
    (load,) = (value for value in kernel.values if isinstance(value, Load))
    assert load.index.coefficient(kernel.outer[-1].var) == 1


PIECES = "const int64_t tile = min_int64_t(from, {columns} - 16), width = 16;"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("columns", [17, 28, 48, 63])
def test_few_columns_go_in_vectors_that_may_overlap(columns, dtype):
    x, y = ((torch.rand(3, 8, columns) * 9).to(dtype) for _ in range(2))

    def fn(x, y):
        mean = x.double().mean(1, keepdim=True)
        return x * 2 + x.amax(1, keepdim=True), (y - mean).exp(), x.double().std(1), y.cumsum(1)

    assert PIECES.format(columns=columns) in check(fn, x, y).lowered.c


@pytest.mark.parametrize("columns", [28, 32])
def test_few_columns_that_are_written_do_not_overlap(columns):
    (kernel,) = kernels(check(lambda x: x - x.amax(1, keepdim=True), torch.randn(3, 20, columns)))
    (read,), (store,) = kernel.read, kernel.stores
    in_place = replace(kernel, stores=(replace(store, buffer=read),))
    assert PIECES.format(columns=columns) in function_text(kernel, 1)
    assert (PIECES.format(columns=columns) in function_text(in_place, 1)) == (columns == 32)


def test_few_columns_of_many_rows_are_read_once():
    compiled = columns(lambda x: x - x.amax(1, keepdim=True), torch.randn(3, 2000, 28))
    assert PIECES.format(columns=28) not in compiled.lowered.c


def alone(fn, *inputs):
    """The C of the only kernel for one thread."""
    compiled = check(fn, *inputs)
    assert len(kernels(compiled)) == 1
    return compiled.lowered.c.partition("void kernel_0")[2]


@pytest.mark.parametrize("columns", [2, 3, 9])
def test_few_columns_of_many_rows_go_row_by_row(columns):
    x = torch.rand(20_000, columns)  # sums that do not cancel
    assert "width" in alone(lambda x: (x * 2 - x.amax(0), x.sum(0)), x)


def test_an_expanded_operand_lies_across_memory():
    x, y = torch.randn(1, 300), torch.randn(30, 1)
    assert "width" in alone(lambda x, y: (x.expand(30, 300).maximum(y) * 0.5).std(0), x, y)


def test_every_second_column():
    assert "width" in alone(lambda x: (x.sum(0), x - x.amax(0)), torch.randn(70, 600)[:, ::2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_results_over_an_expanded_dimension(dtype):
    x = torch.randn(1, 9).to(dtype)
    check(lambda x: x.expand(130, 9).log_softmax(0), x)
    check(lambda x: (x.expand(130, 9) - x.expand(130, 9).mean(0), x.exp()), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8])
@pytest.mark.parametrize("shape", [(16, 16), (130, 33), (300, 75), (20, 20, 40)])
def test_accesses_along_the_rows_are_copied(shape, dtype):
    x, y = ((torch.rand(s) * 20 - 10).to(dtype) for s in (shape, (*shape[:-2], shape[-1], shape[-2])))

    def fn(x, y):
        largest = (x + y.transpose(-1, -2)).amax(-2, keepdim=True)
        turned = (y.transpose(-1, -2) * 2).maximum(largest).transpose(-1, -2).contiguous()
        return x.maximum(largest), turned, x.amin(-2)

    assert {"columns", "short_rows"} & {strategy(k) for k in kernels(check(fn, x, y))}


@pytest.mark.parametrize("dim", [-1, 0])
@pytest.mark.parametrize("op", ["softmax", "log_softmax", "cumsum", "logcumsumexp"])
def test_results_that_lie_across_operands(op, dim):
    for shape in ((40, 70), (300, 130)):
        check(lambda x: getattr(x.t(), op)(dim).contiguous() + 1, torch.randn(shape))
        check(lambda x, y: getattr(x.t() + y, op)(dim) * x.t(), torch.randn(shape), torch.randn(shape[::-1]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_operands_along_a_third_loop_are_copied(dtype):
    x, y = torch.randn(12, 33, 40).to(dtype), torch.randn(12, 40, 33).to(dtype)
    columns(lambda x, y: (x * y.transpose(-1, -2)).softmax(0), x, y)
    columns(lambda x, y: (x * y[0].t()).amax(0).maximum(y[1].t()), x, y)


@pytest.mark.parametrize("dim", [-1, 0])
def test_values_that_all_columns_share_are_computed_again(dim):
    for x in (torch.randn(33), torch.randn(150, 1)):
        check(lambda x: (x.expand(150, 33).sigmoid() + 0.5).softmax(dim), x)
        check(lambda x, y: (x.expand(150, 33).exp() + 0.5).log_softmax(dim) * y, x, torch.randn(150, 33))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [3, 7])
def test_few_columns_beside_many(columns, dtype):
    x, y = torch.randn(12, 130, columns).to(dtype), torch.randn(12, 130, 1).to(dtype)
    text = check(lambda x, y: (x * y).log_softmax(0), x, y).lowered.c
    assert "crossed" in text
    check(lambda x, y: ((x - y).amax(0), (x * y).argmin(0), x.cumsum(0)), x, y)


def test_a_stored_scan_is_read_back():
    """The second pass over the rows needs the values of the scan that the first has stored."""

    def program(x):
        v = x.cummax(0).values
        return v, v.logsumexp(0), (v - v.mean(-1, keepdim=True)).erf()

    check(program, torch.randn(300, 100))


BESIDE_FUNCTIONS = {
    "sums": lambda x: (x.sum(0), (x.abs() + 1).log()),
    "deviations": lambda x: (x.std(0), (x.abs() + 1).log() * x, x.sigmoid()),
    "later passes": lambda x: ((x - x.mean(0)) / (x.std(0) + 1), x.exp(), x.abs().amax(0)),
    "shared functions": lambda x: (lambda v: (v.sum(0), v * 2, v - v.mean(0)))(x.tanh()),
    "scans": lambda x: (lambda v: ((v * v).sum(0), v.sigmoid(), v.argmin(-1)))(x.abs().cumsum(0)),
    "scans of functions": lambda x: (lambda v: (v.std(0), v.exp()))(x.tanh().cumprod(0)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", BESIDE_FUNCTIONS)
def test_stored_functions_beside_reductions(name, dtype):
    for shape in ((70, 13), (200, 64), (90, 1030)):
        x = torch.rand(shape, generator=torch.Generator().manual_seed(5)) + 0.2  # sums that do not cancel
        check(BESIDE_FUNCTIONS[name], x.to(dtype))


@pytest.mark.parametrize(
    ("name", "columns", "loops"),
    [
        ("sums", 512, 2),
        ("sums", 1030, 1),
        ("deviations", 512, 2),
        ("shared functions", 512, 1),
        ("scans", 64, 1),
    ],
)
def test_stored_functions_have_a_loop_of_their_own(name, columns, loops):
    text = fi.lower(trace(BESIDE_FUNCTIONS[name], torch.randn(90, columns)), options=FAST).c
    first_rows = text.partition("for (int64_t r0 = ")[2].partition(" sum")[0]
    assert first_rows.count("const int64_t p0 = tile + j;") == loops
