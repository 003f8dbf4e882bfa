"""Images in channels-last layout: which graphs are converted, and that values, strides and sharing are eager's."""

import functools

import pytest
import torch
from inductor_checks import TABLE
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import InductorOptions, compile_graph
from fxstack_inductor.ir.nodes import ExternCall
from fxstack_inductor.lower.rewrites.channels_last import channels_last
from fxstack_inductor.schedule.steps import KernelStep
from fxstack_inductor.targets.c.lower import lower_c
from fxstack_inductor.targets.triton.lower import lower_triton

F = torch.nn.functional
HALF = torch.bfloat16
MM = torch.ops.aten.mm.default


def randn(*shape, dtype=HALF):
    return torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=-1, high=1)


X, W, B = randn(2, 8, 12, 12), randn(8, 8, 3, 3), randn(8).abs() + 0.5


def deep(x, w):
    """Some convolutions, so that the copies at the ends are few."""
    for _ in range(8):
        x = F.conv2d(x, w, padding=1) / 8
    return x


def converted(fn, *inputs):
    """The traced graph and the converted one."""
    graph = make_fx(fn, decomposition_table=TABLE, tracing_mode="fake")(*inputs)
    return graph, channels_last(graph, "cpu")


def check(fn, *inputs):
    """The converted graph has eager's values and strides, as a graph of operators and through kernels."""
    graph, changed = converted(fn, *inputs)
    assert changed is not graph
    wanted = fn(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    kernels = compile_graph(graph, inputs, InductorOptions(target="cuda"), inference=True)
    for run in (changed, kernels):
        results = run(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        for got, expected in zip(results, wanted, strict=True):
            torch.testing.assert_close(got, expected, rtol=5e-2, atol=5e-2)
            assert got.stride() == expected.stride()


def copies(fn, *inputs):
    """The names of the copies that the conversion makes."""
    _, changed = converted(fn, *inputs)
    return [n.name for n in changed.graph.nodes if n.name.endswith(("_channels_last", "_restored"))]


def norm(x, b):
    b = b.float()
    return F.batch_norm(x, b, b, b, b)


CASES = {
    "relu": lambda x, w: deep(x, w).relu(),
    "norm": lambda x, w, b: norm(deep(x, w), b),
    "residual": lambda x, w: deep(deep(x, w), w) + deep(x, w),
    "pooling": lambda x, w: deep(F.max_pool2d(deep(x, w), 2), w),
    "mean": lambda x, w: deep(x, w).mean((2, 3)),
    "flat": lambda x, w: deep(x, w).view(2, -1),
    "halves": lambda x, w: deep(torch.cat(deep(x, w).chunk(2, 1)[::-1], 1), w),
    "two results": lambda x, w: (deep(x, w), deep(x, w).relu()),
    "rows": lambda x, w: deep(x, w).permute(0, 2, 3, 1).softmax(-1),
    "bias": lambda x, w, b: F.conv2d(deep(x, w), w, b),
    "depthwise": lambda x, w, b: F.conv2d(deep(x, w), w[:, :1], b, groups=8),
    "strides": lambda x, w: deep(x, w).as_strided((3, 3), (5, 1), 7),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_strides_are_eager_s(name):
    check(CASES[name], *(X, W, B)[: CASES[name].__code__.co_argcount])


@pytest.mark.parametrize(
    ("dtype", "has_bfloat16", "is_converted"),
    [(torch.float32, False, True), (HALF, False, False), (HALF, True, True)],
)
def test_depthwise_convolutions_on_a_cpu_are_channels_last_where_they_are_fast(
    dtype, has_bfloat16, is_converted, monkeypatch
):
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: has_bfloat16)
    inputs = [t.to(dtype) for t in (X, W, B)]
    check(CASES["depthwise"], *inputs)
    _, changed = converted(CASES["depthwise"], *inputs)
    *_, last = changed.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default)
    assert last.meta["val"].is_contiguous(memory_format=torch.channels_last) is is_converted


DEPTHWISE = {
    "alone": (lambda x, w: F.conv2d(x, w, groups=8), torch.float32, 0),
    "bfloat16": (lambda x, w: F.conv2d(x, w, groups=8), HALF, 2),
    "behind a function": (lambda x, w: F.conv2d(x.sin(), w, groups=8), torch.float32, 2),
    "before a function": (lambda x, w: F.conv2d(x, w, groups=8).sin(), torch.float32, 2),
    "of an image with gaps": (lambda x, w: F.conv2d(x[..., ::2], w, groups=8), torch.float32, 2),
}


@pytest.mark.parametrize("name", DEPTHWISE)
def test_depthwise_convolutions_take_copies_of_which_one_is_fused(name, monkeypatch):
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: True)
    program, dtype, count = DEPTHWISE[name]
    assert len(copies(program, X.to(dtype), W[:, :1].to(dtype).contiguous())) == count


def test_channels_last_images_need_no_copy():
    x = X.contiguous(memory_format=torch.channels_last)
    assert [n for n in copies(deep, x, W) if n.endswith("_restored")] == []


def test_a_chain_copies_its_ends_and_weights_only():
    assert len(copies(lambda x, w: deep(x, w).relu().sum(), X, W)) == 2


def test_a_single_image_keeps_its_layout_through_norms_and_pools():
    pooled = lambda x, w: F.max_pool2d(F.group_norm(deep(x, w), 2), 2)
    check(lambda x, w: deep(pooled(x, w), w), X[:1], W)
    assert len(copies(lambda x, w: deep(pooled(x, w), w).sum(), X[:1], W)) == 2


def test_results_that_share_memory_share_it_again():
    graph, changed = converted(lambda x, w: (y := deep(x, w), y[0]), X, W)
    whole, part = changed(X, W)
    assert whole.data_ptr() == part.data_ptr()
    assert [r.stride() for r in (whole, part)] == [r.stride() for r in graph(X, W)]


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: F.conv2d(x, w),
        lambda x, w: F.conv2d(x.double(), w.double()).sum(),
        lambda x, w: F.conv2d(x, w[:, :4], groups=2).sum(),
        lambda x, w: F.conv1d(x[:, :, 0], w[:, :, 0]).sum(),
        lambda x, w: x.relu() + w[0, 0, 0, 0],
    ],
    ids=["more copies than work", "float64", "groups", "one dimension", "no convolution"],
)
def test_others_stay(fn):
    graph, changed = converted(fn, X, W)
    assert changed is graph


def test_on_a_cpu_copies_of_large_weights_for_few_points_do_not_pay():
    fn = lambda x, weights: functools.reduce(lambda x, w: F.conv2d(x, w, padding=1).relu(), weights, x).sum()
    few, many = (randn(count, 32, 8, 8, dtype=torch.float32) for count in (1, 64))
    weights = randn(4, 32, 32, 3, 3, dtype=torch.float32)
    assert copies(fn, few, weights) == []
    assert copies(fn, many, weights) != []


def test_symbolic_sizes_stay():
    graph = make_fx(deep, decomposition_table=TABLE, tracing_mode="symbolic")(X, W)
    assert channels_last(graph, "cpu") is graph


def test_random_numbers_are_drawn_in_eager_s_order():
    _, changed = converted(lambda x, w: deep((y := deep(x, w)) * torch.rand_like(y), w), X, W)
    (drawn,) = (n for n in changed.graph.nodes if "rand" in str(n.target))
    assert drawn.meta["val"].is_contiguous()


def points(x, w, b):
    """Convolutions of single points, with a bias, between others."""
    w = w.float()
    for _ in range(6):
        x = F.conv2d(F.conv2d(x, w, padding=1).relu(), w[:, :, :1, :1], b)
    return x


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_on_a_cpu_convolutions_of_single_points_are_products(dtype):
    inputs = [t.to(dtype) for t in (X, W, B)]
    fn = lambda x, w, b: points(x.float(), w, b.float()).to(dtype)
    check(fn, *inputs)
    graph, _ = converted(fn, *inputs)
    steps = lower_c(graph, InductorOptions()).plan.steps
    assert [step.target for step in steps if isinstance(step, ExternCall)].count(MM) == 6
    torch.testing.assert_close(
        compile_graph(graph, inputs, inference=True)(*inputs)[0], fn(*inputs), rtol=2e-2, atol=1e-3
    )


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 9])
def test_products_of_images_of_any_size_and_of_views(batch, size):
    x, w, b = randn(batch, 16, size, size + 1, dtype=torch.float32), W.float()[:, :, :1, :1], B.float()
    layout = {"memory_format": torch.channels_last}
    fn = lambda x, w, b: F.conv2d(F.conv2d(x[:, 4:12].contiguous(**layout), w, b), w.flip(0)) + 1
    graph, _ = converted(fn, x, w, b)
    torch.testing.assert_close(compile_graph(graph, (x, w, b), inference=True)(x, w, b)[0], fn(x, w, b))


@pytest.mark.parametrize("operator", [torch.relu, torch.add, torch.div, torch.atan2, torch.gt])
def test_layouts_of_pointwise_results_are_those_of_fake_kernels(operator):
    count = 1 if operator is torch.relu else 2
    fn = lambda x, w: operator(*[deep(x, w), deep(x, w).half().float()][:count]).sum(3)
    _, changed = converted(fn, X.float(), W.float())
    for node in changed.graph.nodes:
        if node.op == "call_function":
            value = node.meta["val"]
            with value.fake_mode:
                again = node.target(
                    *torch.fx.map_arg(node.args, lambda n: n.meta["val"]),
                    **torch.fx.map_arg(node.kwargs, lambda n: n.meta["val"]),
                )
            assert (again.stride(), again.dtype) == (value.stride(), value.dtype)


@pytest.mark.parametrize("chosen", [True, False])
def test_the_option_chooses(chosen):
    graph, _ = converted(deep, X, W)
    options = InductorOptions(target="cuda", channels_last=chosen)
    steps = lower_triton(graph, options).plan.steps
    stored = [node for step in steps if isinstance(step, KernelStep) for node in step.stored]
    inner = [node.layout.stride[1].as_int() for node in stored if node.layout.shape[0] == 2]
    assert (1 in inner) is chosen
