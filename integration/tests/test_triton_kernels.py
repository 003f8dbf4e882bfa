"""Programs with Triton kernels of their own, beside the same programs in plain Python; Triton runs its interpreter."""

import pytest
import torch
from beside_eager import Programs
from torch.library import triton_op, wrap_triton

import fxstack

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

pytestmark = pytest.mark.filterwarnings("error:fxstack")
programs = Programs()


def program(fn):
    """Compiled, it is called with several sizes; every time all of it is one graph."""

    def calls(c):
        run, seen = c(fn), []
        for n in (50, 50, 38, 21):
            x, y = inputs(n)
            seen.append((run(x, y), x, y))
        return seen

    calls.__name__ = fn.__name__
    programs(breaks=0)(calls)
    return fn


def blocks(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@triton.jit
def scale_kernel(x, by, n, BLOCK: tl.constexpr = 16):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * by, mask=i < n)


@triton.jit
def rows_kernel(x, sums, top, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + i, mask=i < columns, other=-float("inf"))
    tl.store(top + row, tl.max(value, 0))
    tl.store(sums + row, tl.sum(tl.where(i < columns, value, 0), 0))


def first(call, quantiles):
    call()
    return [1.0, 1.0, 1.0]


@triton.autotune([triton.Config({"BLOCK": b}) for b in (8, 16)], key=["n"], do_bench=first)
@triton.heuristics({"EVEN": lambda args: args["n"] % 2 == 0})
@triton.jit
def tuned_kernel(x, out, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    by = 2 if EVEN else 3
    tl.store(out + i, tl.load(x + i, mask=i < n) * by, mask=i < n)


def added(x, y):
    out = torch.empty_like(x)
    add_kernel[blocks(x.numel())](x, y, out, x.numel(), BLOCK=16)
    return out


@program
def result_in_fresh_memory(x, y):
    return added(x.sin(), y).relu() + 1


@program
def input_is_changed(x, y):
    scale_kernel[blocks_of_default](x, 0.5, x.numel())
    return x + y


def blocks_of_default(meta):
    return (triton.cdiv(meta["n"], meta["BLOCK"]), 1)


@program
def value_is_read_before_and_after(x, y):
    z = x.cos()
    before = z * y
    scale_kernel[(4,)](z, 3.0, z.numel())
    return before, z, z + before


@program
def chain_in_place(x, y):
    z = torch.zeros_like(x)
    for k in range(3):
        add_kernel[(4,)](x, y, z, x.numel(), BLOCK=16)
        scale_kernel[(4,)](z, float(k), z.numel(), BLOCK=16)
    return z


@program
def view_is_changed(x, y):
    z = x * 2
    scale_kernel[(1,)](z[4:12], 10.0, 8, BLOCK=8)
    return z + y


@program
def same_tensor_twice(x, y):
    z = x * 2
    add_kernel[blocks(z.numel())](z, y, z, z.numel(), BLOCK=8)
    return z


@program
def several_results(x, y):
    z = (x[:, None] * y[None, :])[::2]
    sums, top = torch.empty(z.shape[0]), torch.empty(z.shape[0])
    rows_kernel[(z.shape[0],)](z, sums, top, z.shape[1], z.stride(0), BLOCK=64)
    return torch.softmax(sums, 0), top.exp()


@program
def tuned(x, y):
    out = torch.empty_like(x)
    tuned_kernel[blocks(x.numel())](x, out, x.numel())
    return out * y


@program
def constant_by_position_and_keyword(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 8), 1, 1)](x, y, out, x.numel(), 8, num_warps=2)
    add_kernel[(4,)](x=out, y=y, out=out, n=out.numel(), BLOCK=16)
    return out


@triton_op("fxstack_test_triton::added", mutates_args=())
def added_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(add_kernel)[(4,)](x, y, out, x.numel(), BLOCK=16)
    return out.neg()


@triton_op("fxstack_test_triton::scaled_", mutates_args=("x",))
def scaled_op(x: torch.Tensor) -> None:
    wrap_triton(scale_kernel)[(4,)](x, 0.5, x.numel())


added_op.register_autograd(lambda ctx, g: (-g, -g))


@program
def operators_of_kernels(x, y):
    z = added_op(x, y).sin()
    scaled_op(z)
    wrap_triton(scale_kernel)[(4,)](z, 2.0, z.numel())
    return z


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return added(x * y, y)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y, added(grad * x, grad)


def with_gradients(x, y):
    return Product.apply(x.sin(), y).exp()


def inputs(n, grad=False):
    return [torch.linspace(-1, 1 + k, n).requires_grad_(grad) for k in range(2)]


@programs(breaks=0)
def gradients_of_an_operator(c):
    x, y = inputs(40, grad=True)
    c(lambda x, y: added_op(x.exp(), y) * y)(x, y).sum().backward()
    return x.grad, y.grad


test_equals_eager = programs.tests()


def test_gradients_equal_eager():
    ours, plain = inputs(40, grad=True), inputs(40, grad=True)
    fxstack.compile(with_gradients)(*ours).sum().backward()
    with_gradients(*plain).sum().backward()
    torch.testing.assert_close([t.grad for t in ours], [t.grad for t in plain])


def test_partly_overlapping_arguments_break_the_graph():
    def fn(x, y):
        z = x * 2
        add_kernel[(1,)](z[1:9], y, z[:8], 8, BLOCK=8)
        return z

    compiled = fxstack.compile(fn)
    torch.testing.assert_close(compiled(*inputs(20)), fn(*inputs(20)))
    (record,) = fxstack.compile_log(compiled).breaks
    assert "of tensors that overlap" in record.title
