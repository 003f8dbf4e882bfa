"""What fuses, what is refused and why, and that the order is right."""

import pytest
import torch
from inductor_checks import FAST, assert_equal, check, externs, fused, kernels, trace, with_range

import fxstack_inductor as fi
from fxstack_inductor.ir.kernel import Load, operands
from fxstack_inductor.schedule.fusion.inlining import is_range_call
from fxstack_inductor.schedule.steps import KernelStep
from fxstack_inductor.targets.triton.lower import lower_triton

F = torch.nn.functional
X = torch.randn(8, 12, 32)


def refusals(compiled):
    return {refusal.rule for _, _, refusal in compiled.lowered.plan.refusals}


def test_a_chain_is_one_kernel():
    def chain(x):
        for _ in range(10):
            x = (x.sin() + 1) * 0.5
        return x

    assert fused(check(chain, X))


def test_several_results_share_a_loop():
    assert fused(check(lambda x: (x.sin(), x.cos(), x.sin() + x.cos()), X))


def test_through_reshapes():
    assert fused(check(lambda x: (lambda y: (y, y.view(96, 32).softmax(-1)))(x.exp()), X))


def test_siblings_that_read_the_same_memory():
    assert fused(check(lambda x, y: (x + y, x * y), X, X.cos()))


def test_attention_scores_with_a_mask():
    def scores(s):
        mask = torch.ones(12, 12, dtype=torch.bool).tril()
        return s.masked_fill(~mask, float("-inf")).softmax(-1)

    assert len(kernels(check(scores, torch.randn(8, 12, 12)))) <= 2


def test_a_call_in_between_keeps_them_apart():
    compiled = check(lambda x: (lambda y: (x @ y.t()) * (y @ y.t()))(x.exp()), torch.randn(6, 5))
    assert len(kernels(compiled)) == 2
    assert len(externs(compiled)) == 2


def test_something_in_between_is_a_named_refusal():
    def f(x):
        y = x.exp()
        z = (y @ y).sum() * 2
        return y.cos() + z, y

    assert check(f, torch.randn(6, 6))


def test_reductions_over_different_axes_are_refused_by_name():
    compiled = check(lambda x: (lambda y: (y.sum(0), y.sum(1)))(x.exp() + x.sin()), torch.randn(20, 30))
    assert len(kernels(compiled)) == 2
    assert "reductions over different loops" in refusals(compiled)


def test_random_numbers_keep_their_order():
    def draws(x):
        a = torch.rand_like(x)
        b = torch.rand_like(x)
        return b.sin() - a.cos() * torch.bernoulli(x.sigmoid())

    x = torch.randn(50)
    from inductor_checks import trace

    import fxstack_inductor as fi

    compiled = fi.compile_graph(trace(draws, x), (x,), FAST)
    torch.manual_seed(3)
    wanted = draws(x)
    torch.manual_seed(3)
    torch.testing.assert_close(compiled(x)[0], wanted)


def test_equal_kernels_are_one_function():
    def layers(x, w):
        for _ in range(6):
            x = F.gelu(x @ w)
        return x

    compiled = check(layers, torch.randn(9, 16), torch.randn(16, 16))
    assert compiled.lowered.c.count("\nvoid kernel_") == 1
    assert len(kernels(compiled)) == 6


def test_generated_code_is_deterministic():
    from inductor_checks import trace

    import fxstack_inductor as fi

    def f(x):
        return (x.softmax(-1) @ x.transpose(1, 2)).exp().sum(1), x.mean((0, 2))

    first, second = (fi.lower(trace(f, X)) for _ in range(2))
    assert first.c == second.c
    assert first.host == second.host


def layers(x, w, *saved):
    for _ in saved:
        x = F.layer_norm(x + F.gelu(x @ w), (16,))
    return x


def gradients_of_layers(g, w, *saved):
    """Each layer's gradient waits for the one before; what it is multiplied by waits for nothing."""
    weight = torch.zeros(16, 16)
    for x in saved:
        activation = x - x.mean(-1, keepdim=True)
        g = g - g.sum(-1, keepdim=True)
        g = (g * (1 - activation * activation)) @ w
        weight = weight + activation.t() @ g
    return g, weight


@pytest.mark.parametrize("program", [layers, gradients_of_layers])
def test_work_grows_in_proportion_to_layers(program):
    """Counted in Python calls, which are the same on every machine."""
    import cProfile

    from inductor_checks import trace

    import fxstack_inductor as fi

    def calls(count):
        saved = [torch.randn(4, 16) for _ in range(count)]
        graph = trace(program, torch.randn(4, 16), torch.randn(16, 16), *saved)
        profile = cProfile.Profile()
        profile.runcall(fi.lower, graph)
        return sum(entry.callcount for entry in profile.getstats())

    calls(2)
    assert calls(80) < 4.2 * calls(20)


def test_kernels_of_many_tensors_do_not_exhaust_pythons_stack():
    def sums(x):
        total = x
        for k in range(150):
            total = total + x.roll(k % 7, 0).sin()
        return total

    compiled = check(sums, torch.randn(8, 4))
    assert max(len(kernel.values) for kernel in kernels(compiled)) > 150


def test_a_heavy_tensor_is_not_computed_in_two_passes():
    x = torch.randn(2, 3, 8, 8)

    def fn(x):
        pooled = torch.nn.functional.max_pool2d(x, 3, 1, 1)
        return pooled - pooled.mean((0, 2, 3), keepdim=True)

    compiled = check(fn, x)
    reasons = {refusal.rule for _, _, refusal in compiled.lowered.plan.refusals}
    assert "heavy, and needed in several passes" in reasons


def test_what_windows_read_is_computed_once():
    def fn(x):
        return torch.nn.functional.max_pool2d((x * 2 + 1).relu() - 3, 3, 2, 1)

    compiled = check(fn, torch.randn(2, 3, 16, 16))
    assert len([s for s in compiled.lowered.plan.steps if hasattr(s, "kernel")]) == 2


ORDER = torch.randperm(8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, at: (x.sum(1) + 1)[at],
        lambda x, at: (x.amax(-1, keepdim=True) * 2).index_select(0, at).relu(),
        lambda x, at: (x[:, :1].sum(1).cos())[at],
        lambda x, at: (x.cumsum(1) + 1)[at],
        lambda x, at: (x.argmax(1).double() * 2).take_along_dim(at[:, None], 0),
        lambda x, at: F.log_softmax(x, -1)[at] + x.mean((1, 2))[at][:, None, None],
    ],
)
def test_what_is_made_of_a_reduction_and_then_indexed_is_read_where_the_index_says(f):
    check(f, X, ORDER)


def test_single_elements_of_a_cheap_tensor_do_not_put_it_into_memory():
    x, at = torch.randn(32, 500), torch.randint(500, (32,))
    compiled = check(lambda x, at: F.cross_entropy(x, at), x, at)
    stored = [(s.buffer, k) for k in kernels(compiled) for s in k.stores]
    sizes = [r.numel.as_int() for name, k in stored for r in k.buffers if r.name == name]
    assert max(sizes) == 32


def test_sums_over_loops_without_points():
    check(lambda x: (x / (x.abs().sum(1, keepdim=True) + 1)).sum(-2, keepdim=True), torch.rand(0, 0))


def whole(x):
    y = x.sin() * 2  # a kernel of its own outside of a range
    z = (y.exp() + 1).cos()  # the range
    return z * 3 + y, z.sum()


def test_no_kernel_crosses_the_ends_of_a_profiler_range():
    compiled = fi.compile_graph(with_range(trace(whole, X), "exp", "cos"), (X,), FAST)
    assert_equal(compiled(X), whole(X))
    plan = compiled.lowered.plan
    begin, end = (k for k, step in enumerate(plan.steps) if is_range_call(step))
    parts = [plan.steps[:begin], plan.steps[begin + 1 : end], plan.steps[end + 1 :]]
    made = [{origin for step in part for origin in step.kernel.origins} for part in parts]
    assert made == [{"mul"}, {"cos"}, {"add_1", "sum_1"}]
    assert "a profiler range begins or ends in between" in refusals(compiled)


def widened(x, w):
    """A sum in half precision that a product, a row's sum and a column's sum read in float32."""
    total = (x + x.sin()).relu()
    wide = total.float()
    return wide.mean(1), wide.square().sum(0), total @ w


def test_readers_of_a_wider_dtype_read_the_narrow_tensor():
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    graph = trace(widened, x, x)
    steps = lower_triton(graph, fi.InductorOptions(target="cuda", templates=False)).plan.steps
    stored = [node for step in steps if isinstance(step, KernelStep) for node in step.stored]
    assert {node.dtype for node in stored if node.layout.numel == 64 * 64} == {torch.bfloat16}


def columns_beside(g, x, r):
    """The gradient of a norm's weight, and the norm's result, which the next product reads."""
    normal = x * r
    return (g * normal).sum(0), (normal + 1) @ g.t()


@pytest.mark.parametrize(("columns", "alone"), [(192, True), (2048, False)])
def test_sums_of_few_columns_keep_other_results_out_of_their_kernel(columns, alone):
    inputs = torch.randn(128, columns), torch.randn(128, columns), torch.randn(128, 1)
    options = fi.InductorOptions(target="cuda", templates=False)
    steps = lower_triton(trace(columns_beside, *inputs), options).plan.steps
    stored = [len(step.stored) for step in steps if isinstance(step, KernelStep)]
    assert stored == ([1, 1] if alone else [2])


def scanned(x, w):
    return x.cumsum(1).bfloat16() @ w.bfloat16()


def test_a_scan_is_stored_in_the_narrow_dtype_in_which_it_is_read():
    graph = trace(scanned, torch.randn(4, 64), torch.randn(64, 64))
    steps = lower_triton(graph, FAST).plan.steps
    (kernel,) = (s.kernel for s in steps if isinstance(s, KernelStep) and s.kernel.ordered)
    assert {ref.dtype for ref in kernel.buffers if ref.name in kernel.written} == {torch.bfloat16}


@pytest.mark.parametrize(("memory_format", "steps"), [(torch.contiguous_format, 1), (torch.channels_last, 2)])
def test_what_channels_share_is_computed_first_where_channels_are_innermost(memory_format, steps):
    x = torch.randn(2, 8, 6, 6).contiguous(memory_format=memory_format)
    assert len(kernels(check(lambda x, gate: x * gate.sigmoid(), x, torch.randn(2, 8, 1, 1)))) == steps


def gpu_kernels(fn, *inputs):
    return [s for s in lower_triton(trace(fn, *inputs), FAST).plan.steps if isinstance(s, KernelStep)]


def test_a_scalar_is_computed_beside_the_sum_that_it_reads():
    x, labels = torch.randn(16, 32), torch.randint(0, 32, (16,))
    assert fused(check(lambda x: (x.sum() / 3).sqrt() + x.amax(), X.abs()))
    assert len(gpu_kernels(lambda x, labels: F.cross_entropy(x, labels), x, labels)) == 2


def test_a_scalar_stays_apart_from_the_elements_that_read_it():
    assert len(gpu_kernels(lambda x, y: y * x.sum().sqrt(), torch.randn(100), torch.randn(3000))) == 2


def test_a_gpu_computes_a_short_tensor_again_for_each_of_its_readers_elements():
    def buckets(x):
        return x + (torch.arange(12)[:, None] - torch.arange(32)).abs().log1p()

    def rows(ids, positions, weight, x):
        return F.layer_norm(x + F.embedding(ids[positions], weight), (32,))

    inputs = torch.randint(0, 9, (20,)), torch.randint(0, 20, (12,)), torch.randn(9, 32), X
    assert [len(gpu_kernels(buckets, X)), len(gpu_kernels(rows, *inputs))] == [1, 1]
    large = torch.randn(100, 1000, 1000)
    assert len(gpu_kernels(lambda x, y: x + (y.exp() + y.sin()).expand_as(x), large, large[0])) == 2


def test_a_sum_over_few_columns_leaves_elements_that_others_need_to_the_rows():
    def f(x, y):
        added = x + y
        return added, added.sum(0), (added * added).mean(1)

    first, *_ = gpu_kernels(f, torch.randn(128, 192), torch.randn(128, 192))
    (part,) = (k for k in first.kernel.parts or (first.kernel,) if len(k.stores) > 1)
    assert [store.buffer.partition("__")[0] for store in part.stores] == ["add", "mean"]


def test_a_slow_scan_is_a_kernel_without_reductions():
    compiled = check(lambda x: (lambda y: y - y.mean(-1, keepdim=True))(x.logcumsumexp(-1)), X)
    assert "a reduction beside a slow scan" in refusals(compiled)
    for rows, length, apart in ((9, 200, True), (7, 200, False), (9, 100, False)):
        compiled = check(lambda x: x.softmax(-1).cumsum(-1), torch.randn(rows, length))
        assert ("a reduction beside a slow scan" in refusals(compiled)) == apart
    assert fused(check(lambda x: (lambda y: y - y.mean(-1, keepdim=True))(x.cumsum(-1)), X))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: torch.cat([x, x * 2], -1).softmax(-1),
        lambda x: F.max_pool2d(x, 3, 1, 1).sum(-1),
        lambda x: (x.roll(3, -1).exp() * 2).cumsum(-1),
    ],
)
def test_conditional_reads_are_no_part_of_a_reduction(fn):
    found = kernels(check(fn, X))
    assert len(found) > 1
    assert not any(v.mask is not None for k in found if k.inner for v in k.values if isinstance(v, Load))


@pytest.mark.parametrize(
    "moved",
    [lambda x: x.roll(3, -1) + 1, lambda x: torch.cat([x[..., 5:], x[..., :5]], -1), lambda x: x.roll(3, 1)],
)
@pytest.mark.parametrize(("dim", "kernel"), [(0, True), (1, False), (-1, False), ((0, 1, 2), False)])
def test_reductions_over_expanded_dimensions_take_conditional_reads(moved, dim, kernel):
    x = torch.randn(1, 12, 32).expand(8, 12, 32)
    program = trace(lambda x: moved(x).amax(dim), x)  # ``check`` would copy the tensor
    compiled = fi.compile_graph(program, (x,), FAST)
    assert fused(compiled) == kernel
    assert_equal(compiled(x), (moved(x).amax(dim),))


def test_results_across_memory_are_no_part_of_a_reduction_along_it():
    x, y = torch.randn(40, 60), torch.randn(60, 40)
    assert fused(check(lambda x, y: x - y.amax(0), y * 2, y))
    compiled = check(lambda x, y: x.t() - y.amax(0), x, y)
    assert "along memory beside across memory" in refusals(compiled)


def test_elementwise_results_along_different_loops_share_more_than_their_copies_take():
    x, y, row = torch.randn(40, 60), torch.randn(60, 40).t(), torch.randn(60)
    compiled = check(lambda x, y, row: (x + row, y * row), x, y, row)
    assert "results along different loops" in refusals(compiled)
    assert len(kernels(compiled)) == 2
    assert fused(check(lambda x, y, row: (x + row, y * row), x, y.contiguous(), row))
    assert not fused(check(lambda x, y, row: (x + row, y * x), x, y, row))
    assert not fused(check(lambda x, y, row: (lambda z: (z, y * z))(x + row), x, y, row))
    assert fused(check(lambda x, y, row: (torch.maximum(x, y), torch.minimum(y, x) + row), x, y, row))
    assert not fused(check(lambda x, y, row: (x.cumsum(-1), y * row), x, y, row))


def test_slow_functions_of_few_columns_are_no_part_of_a_reduction_across_them():
    x = torch.randn(90, 7)
    compiled = check(lambda x: (x.exp() * 2, x.amax(0)), x)
    assert "slow functions of few columns" in refusals(compiled)
    assert fused(check(lambda x: (x.exp() * 2, x.amax(1)), x))
    assert fused(check(lambda x: (x.exp() * 2, x.amax(0)), x.t().contiguous()))


def test_a_slow_function_of_each_row_stays_in_the_kernel_of_the_row():
    assert fused(check(lambda x: x.log_softmax(-1), torch.randn(3, 999)))


def test_a_result_that_repeats_a_reduction_across_memory_is_no_part_of_it():
    x = torch.randn(60, 40)
    compiled = check(lambda x: (x.sum(0).expand(60, 40) * 2).exp(), x)
    assert "a result that repeats a reduction" in refusals(compiled)
    assert fused(check(lambda x: x * x.sum(0), x))
    assert fused(check(lambda x: (x.sum(1, True).expand(60, 40) * 2).exp(), x))


def test_slow_functions_are_computed_in_one_pass_over_many_rows():
    x = torch.randn(5000, 70)
    compiled = check(lambda x: x.sin().tanh().std(0), x)
    assert "slow functions in several passes" in refusals(compiled)
    assert fused(check(lambda x: x.sin().tanh().std(0), x[:500]))  # the kernel keeps the values of a tile
    assert fused(check(lambda x: x.sin().tanh().sum(0), x))
    assert fused(check(lambda x: (x * 2).std(0), x))


def test_steps_of_a_slow_scan_are_computed_once():
    compiled = check(lambda x: (lambda y: y - y.mean(0))(x.logcumsumexp(0)), torch.randn(5000, 70))
    assert "slow functions in several passes" in refusals(compiled)


def test_far_reads_in_long_rows_are_no_part_of_a_reduction_across_the_rows():
    def f(x, order):
        y = x[:, order]
        return y - y.amax(0)

    compiled = check(f, torch.randn(40, 2000), torch.randperm(2000))
    assert "reads at places from memory beside a reduction across memory" in refusals(compiled)
    assert fused(check(f, torch.randn(40, 500), torch.randperm(500)))


def test_far_reads_of_halves_are_no_part_of_a_reduction_across_rows_of_any_length():
    def f(x, order):
        y = x - x[:, order]
        return y, y.amax(0)

    x, order = torch.randn(40, 200), torch.randperm(200)
    assert len(kernels(check(f, x.bfloat16(), order))) == 2
    assert fused(check(f, x, order))


@pytest.mark.parametrize(("size", "count"), [(2000, 1), (500, 2)])
def test_far_reads_in_long_rows_are_not_repeated_for_several_readers(size, count):
    def f(x, order):
        y = x[:, order].relu()
        return y.mean(-1), y.amax(0)

    compiled = check(f, torch.randn(40, size), torch.randperm(size))
    indirect = [
        v for kernel in kernels(compiled) for v in kernel.values if isinstance(v, Load) and operands(v)
    ]
    assert len(indirect) == count


def test_short_rows_are_no_part_of_a_reduction_across_long_columns():
    x, column = torch.randn(9, 30, 14), torch.randn(9, 30, 1)
    rule = "a reduction of long columns beside short rows"
    assert rule in refusals(check(lambda x, c: (x.amin(0), x - c), x, column))
    assert rule in refusals(check(lambda x, y: (x.cumsum(0), x - y), x, torch.randn(9, 30, 17)[..., :14]))
    assert rule in refusals(check(lambda x, c: x[:3].softmax(0) * c[:3], x, column))
    assert fused(check(lambda x: (x.amin(0), x - 1), x))
    assert fused(check(lambda x, c: (x.amin(0), x - c), torch.randn(9, 30, 96), column))


def test_operands_along_a_third_loop_are_no_part_of_a_reduction_across_long_columns():
    x, y = torch.randn(9, 96, 120), torch.randn(9, 120, 96)
    compiled = check(lambda x, y: x * x.amax(0) + y.transpose(1, 2), x, y)
    assert "a reduction of long columns beside short rows" in refusals(compiled)
    assert fused(check(lambda x, y: (x + y.transpose(1, 2)).softmax(0), x, y))


def test_short_rows_are_part_of_a_reduction_that_they_cost_little():
    x, column = torch.randn(9, 30, 14), torch.randn(9, 30, 1)
    assert fused(check(lambda x, c: (x[:3].amin(0), x[:3] - c[:3]), x, column))
    assert fused(check(lambda x, c: (x.sum(0), (x * c).sum(0)), x, column))
    assert fused(check(lambda x, c: x.mean(0) + c[0], x, column))


def test_elementwise_results_are_part_of_reductions_along_memory():
    x = torch.randn(90, 100)
    assert fused(check(lambda x: (x.amin(-1, keepdim=True), x.clamp(-1, 1)), x))
    assert fused(check(lambda x: (x.amin(-1), x.sum(-1), x.exp().sum(-1), x * 2), x))


def stored(fn, *inputs):
    """The number of tensors that kernels store."""
    return sum(len(kernel.stores) for kernel in kernels(check(fn, *inputs)))


def test_tensors_of_two_operands_are_computed_again_for_two_elementwise_readers():
    x, y, z = torch.randn(3, 90, 100)
    assert stored(lambda x, y: (lambda v: (v.flip(-1) * 2, v + 1))(x - y), x, y) == 2
    assert stored(lambda x, y, z: (lambda v: (v.flip(-1) * 2, v + 1))(x - y - z), x, y, z) == 2
    assert stored(lambda x, y, z: (lambda v: (v.flip(-1), v + 1, v.flip(0)))(x - y - z), x, y, z) == 4


def test_operations_on_one_element_count_once():
    """A selection reads the tensor three times, and its kernel computes the tensor once."""

    def fn(x):
        y = x.clamp(-3, 3)
        y = torch.where(y > 0, y, -y)
        return y.flip(-1) + x, torch.maximum(y, x)

    assert fused(check(fn, X))


def test_results_that_read_a_tensor_in_several_orders_share_a_loop():
    assert fused(check(lambda x: (x.flip(-1) * 2, x.flip(-1) + x, x - 1), X))
    assert fused(check(lambda x: (x.flip(-1) + x, x - 1, x.flip(-1) * 2), X))


def test_expanded_operands_take_no_memory():
    def shifted(x, y, z):
        v = x - y + z
        return v.flip(-1), v + 1, v.flip(0)

    x, row, column = (
        torch.randn(90, 100),
        torch.randn(100).expand(90, 100),
        torch.randn(90, 1).expand(90, 100),
    )
    assert stored(shifted, x, row.contiguous(), column.contiguous()) == 4
    compiled = fi.compile_graph(trace(shifted, x, row, column), (x, row, column), FAST)
    assert sum(len(kernel.stores) for kernel in kernels(compiled)) == 3
    assert_equal(compiled(x, row, column), shifted(x, row, column))


@pytest.mark.parametrize(
    ("fn", "shape", "together"),
    [
        (lambda x: x.roll(3, -1).norm(dim=-1), (40, 7), True),
        (lambda x: x.roll(3, -1).norm(dim=-1), (40, 70), False),
        (lambda x: torch.cat([x[:, :3], x[:, 2:]], 1).sum(1), (40, 6), True),
        (lambda x: x.roll(3, 0).sum(-1), (40, 7), False),
    ],
)
def test_conditions_that_a_few_inner_points_decide_stay_beside_their_reductions(fn, shape, together):
    assert fused(check(fn, torch.randn(shape))) == together


@pytest.mark.parametrize(
    ("fn", "columns", "together"),
    [
        (lambda x: (x.std(0), x.exp()), 1000, True),
        (lambda x: (x.std(0), x.exp()), 2000, False),
        (lambda x: (x.std(0), x * 2), 2000, True),
        (lambda x: (x.exp().sum(0), x.exp()), 2000, True),
        (lambda x: (x - x.amax(0)).exp(), 2000, True),
    ],
)
def test_slow_functions_stay_out_of_sums_over_pieces_of_rows(fn, columns, together):
    assert fused(check(fn, torch.randn(20, columns))) == together
