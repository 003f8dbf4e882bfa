"""Scatters beside eager: order, rounding, dtypes, indices out of range, gradients."""

import pytest
import torch
import torch.nn.functional as F
from inductor_checks import check, check_gradients, copies, externs, kernels

X = torch.randn(7, 11, 5)
WIDE = torch.randn(9, 40)
SOME = torch.tensor([3, 0, 3, 6, 3, 1])
NEGATIVE = torch.tensor([-1, 2, -7, 2])


def places(dim, *shape):
    return torch.randint(0, X.shape[dim], shape)


def bits(compiled, fn, *inputs):
    """Sums in eager's order are eager's to the last bit."""
    assert torch.equal(compiled(*inputs)[0], fn(*inputs))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_scatter_add_in_eagers_order(dim):
    index, src = places(dim, 6, 5, 4), torch.randn(6, 5, 4)
    fn = lambda x, i, s: x.scatter_add(dim, i, s)
    compiled = check(fn, X, index, src)
    assert not externs(compiled)
    bits(compiled, fn, X, index, src)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float64])
def test_scatter_reduce(reduce, include_self, dtype):
    x, src = (X * 3).to(dtype), (torch.randn(6, 5, 4) * 3).to(dtype)
    index = places(1, 6, 5, 4)
    check(lambda x, i, s: x.scatter_reduce(1, i, s, reduce, include_self=include_self), x, index, src)


def test_extremes_keep_nan():
    src = torch.tensor([1.0, torch.nan, 3.0, 2.0])
    index = torch.tensor([0, 0, 1, 1])
    check(lambda x, i, s: x.scatter_reduce(0, i, s, "amax"), torch.zeros(3), index, src)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
def test_scatter_sets_the_last(dtype):
    src = (torch.randn(6, 11, 5) * 4).to(dtype)
    index = SOME[:, None, None].expand(6, 11, 5).contiguous()
    check(lambda x, i, s: x.scatter(0, i, s), X.to(dtype), index, src)
    check(lambda x, i: x.scatter(0, i, 2), X.to(dtype), index)


@pytest.mark.parametrize("reduce", ["add", "multiply"])
def test_scatter_with_a_reduction(reduce):
    index = SOME[:, None, None].expand(6, 11, 5).contiguous()
    check(lambda x, i, s: x.scatter(0, i, s, reduce=reduce), X, index, torch.randn(6, 11, 5))
    check(lambda x, i: x.scatter(0, i, 1.5, reduce=reduce), X, index)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16])
def test_slices(dim, dtype):
    x = (WIDE * 5).round().to(dtype)  # small whole numbers: sums are exact in any order
    source = torch.randint(-9, 9, (6, 40) if dim == 0 else (9, 6)).to(dtype)
    check(lambda x, i, s: x.index_add(dim, i, s), x, SOME, source)
    check(lambda x, i, s: x.index_add(dim, i, s, alpha=2), x, SOME, source)
    check(lambda x, i, s: x.index_copy(dim, i, s), x, SOME, source)
    check(lambda x, i: x.index_fill(dim, i, 3), x, SOME)
    check(lambda x, i: x.index_fill(dim, -1 - i, x[0, 0]), x, SOME)


@pytest.mark.parametrize("accumulate", [True, False])
def test_index_put(accumulate):
    def put(*where):
        """``where``: what the dimensions are indexed by, True for the next index."""

        def fn(x, v, *indices):
            rest = iter(indices)
            given = [next(rest) if w else None for w in where]
            return torch.ops.aten.index_put(x, given, v, accumulate)

        return fn

    check(put(True), X, torch.randn(4, 11, 5), NEGATIVE)
    check(put(True), X, torch.randn(1, 11, 5), NEGATIVE)
    check(put(True), X, torch.randn(()), NEGATIVE)
    check(put(False, True), X, torch.randn(7, 4, 5), NEGATIVE)
    pair = torch.tensor([0, 1, 0, 4])
    check(put(True, False, True), X, torch.randn(4, 4, 11), NEGATIVE[:, None], pair)
    check(put(True, True, True), X, torch.randn(4), NEGATIVE, NEGATIVE, pair)


def test_a_mask_with_one_value_is_elementwise():
    compiled = check(lambda x: torch.where(x > 0, x, 0).index_put((x > 1,), torch.tensor(2.0)), X)
    assert not externs(compiled)
    check(lambda x, m: x.index_put((m,), torch.tensor(2.0)), X, X[:, :, 0] > 0)


def test_several_scatters_share_a_kernel_file_and_no_memory():
    fn = lambda x, i, s: (x.index_add(0, i, s), x.index_add(0, i, s * 2) + 1, x)
    check(fn, WIDE, SOME, torch.randn(6, 40))


def test_what_is_scattered_is_computed_in_the_kernel():
    fn = lambda x, i, s: (x * 2).index_add(0, i, s.exp()).relu()
    compiled = check(fn, WIDE, SOME, torch.randn(6, 40))
    assert not externs(compiled)


@pytest.mark.parametrize("bad", [9, -10])
def test_indices_out_of_range_raise_eagers_error(bad):
    index = torch.tensor([0, bad])
    fn = lambda x, i, s: x.index_put((i,), s)
    compiled = check(fn, WIDE, torch.tensor([0, 1]), torch.randn(2, 40))
    with pytest.raises(IndexError) as want:
        fn(WIDE, index, torch.randn(2, 40))
    with pytest.raises(IndexError) as got:
        compiled(WIDE, index, torch.randn(2, 40))
    assert str(got.value) == str(want.value)


def test_negative_indices_of_scatter_raise():
    index = torch.tensor([[-1] * 40])
    compiled = check(lambda x, i: x.scatter(0, i, 1.0), WIDE, torch.zeros(1, 40, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="out of bounds"):
        compiled(WIDE, index)


ONE_EACH = {
    "numbers": lambda x, i: torch.zeros_like(x).scatter(1, i, -1.0) * x,
    "elements": lambda x, i: torch.full_like(x, 0.5).scatter(1, i, x),
    "sums": lambda x, i: torch.full_like(x, 0.5).scatter_add(1, i, x[:, 1:2]) + x,
    "through a view": lambda x, i: torch.zeros(7, 1, 5).expand(7, 11, 5).scatter(1, i, 2.0) - x,
    "booleans": lambda x, i: torch.zeros_like(x, dtype=torch.bool).scatter(1, i, True) & (x > 0),
    "other index dtype": lambda x, i: F.one_hot(i[:, 0], 11) * x[:, :, :1].transpose(1, 2),
}


@pytest.mark.parametrize("name", ONE_EACH)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_element_of_each_row_is_a_comparison(name, dtype):
    compiled = check(ONE_EACH[name], X.to(dtype), places(1, 7, 1, 5))
    assert len(kernels(compiled)) == 1


@pytest.mark.parametrize("bad", [11, -1])
def test_a_comparison_checks_the_index(bad):
    compiled = check(lambda x, i: torch.zeros_like(x).scatter(1, i, 1.0) * x, X, places(1, 7, 1, 5))
    with pytest.raises(RuntimeError, match=f"index {bad} is out of bounds for dimension 1 with size 11"):
        compiled(X, torch.full((7, 1, 5), bad))


def test_scatters_into_other_tensors_store_single_elements():
    compiled = check(lambda x, i: x.scatter(1, i, 1.0), X, places(1, 7, 1, 5))
    assert "scatter" in str(compiled.lowered.plan.program) or len(kernels(compiled)) == 2


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradient_of_an_embedding(padding, dtype):
    def fn(weight, i):
        return F.embedding(i, weight, padding_idx=padding).square()

    assert not externs(check_gradients(fn, WIDE.to(dtype), torch.randint(0, 9, (3, 17))))


@pytest.mark.parametrize("shape", [(1, 40), (0, 40)])
def test_few_and_no_elements(shape):
    index = torch.zeros(shape, dtype=torch.int64)
    check(lambda x, i, s: x.scatter_add(0, i, s), WIDE, index, torch.randn(shape))


def test_symbolic_sizes():
    def inputs(rows, columns, count):
        return (torch.randn(rows, columns), torch.randint(0, rows, (count,)), torch.randn(count, columns))

    fn = lambda x, i, s: (x.index_add(0, i, s), x.index_put((i,), s * 2))
    check(fn, *inputs(9, 40, 6), symbolic=True, others=[inputs(5, 33, 12), inputs(31, 3, 2)])


def test_gradients_of_gathers():
    check_gradients(lambda x, i: x.gather(0, i) * 2, WIDE, torch.randint(0, 9, (3, 40)))
    check_gradients(lambda x, i: x[i] * 2, WIDE, SOME)
    check_gradients(lambda x, i: x.index_select(1, i) * 2, WIDE, SOME)


def test_channels_last_results():
    image = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    check(lambda x, i, s: x.index_add(1, i, s), image, torch.tensor([2, 0]), torch.randn(2, 2, 4, 5))


def test_scatters_that_follow_each_other_copy_once():
    fn = lambda x, i, s: x.index_add(0, i, s).index_copy(0, i, s * 2).index_add(0, i, s)
    compiled = check(fn, WIDE, SOME, torch.randn(6, 40))
    assert len(kernels(compiled)) == 4
    two = lambda x, i, s: (x.index_add(0, i, s), x.index_add(0, i, s).index_copy(0, i, s))
    check(two, WIDE, SOME, torch.randn(6, 40))


ONE = {
    "index_put": lambda c, p, s: c.index_put_((p,), torch.tensor(1.0)),
    "index_put with accumulate": lambda c, p, s: c.index_put_((p,), s, accumulate=True),
    "index_add": lambda c, p, s: c.index_add_(0, p, s),
    "index_copy": lambda c, p, s: c.index_copy_(0, p, s),
    "index_fill": lambda c, p, s: c.index_fill_(0, p, 2.0),
    "scatter": lambda c, p, s: c.scatter_(0, p.reshape([1] * c.dim()), 2.0),
    "scatter_add": lambda c, p, s: c.scatter_add_(0, p.reshape([1] * c.dim()), s),
    "index of an index": lambda c, p, s: c.index_put_((p[p * 0],), torch.tensor(1.0)),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3)])
def test_one_position_is_written_in_place(name, shape):
    def fn(c, p, s):
        ONE[name](c, p, s)
        return p + 1

    inputs = torch.randn(shape), torch.tensor([2]), torch.randn(1, *shape[1:])
    compiled = check(fn, *inputs)
    assert not compiled.lowered.plan.copies
    assert_changed(compiled, fn, *inputs)


def assert_changed(compiled, fn, *inputs):
    """Both change the first of ``inputs`` alike."""
    results = [copies(inputs), copies(inputs)]
    compiled(*results[0])
    fn(*results[1])
    assert torch.equal(results[0][0], results[1][0])
