"""Mutation, aliasing and gradients of single functions: eager against ahead-of-time."""

import pytest
import torch
from compare import check, dynamic, refuses


def leaf(*shape, grad=True):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape).clone().requires_grad_(grad)


def nonleaf(*shape):
    root = leaf(*shape)
    made = root * 2
    made.root = root
    return made


def mk(*makers):
    return lambda: tuple(m() for m in makers)


A = lambda: leaf(3, 4)
N = lambda: leaf(3, 4, grad=False)
B = lambda: nonleaf(3, 4)


def no_grad_add(x, y):
    with torch.no_grad():
        x.add_(y.detach())
    return (x * 2,)


def data_mul(x):
    x.data.mul_(2)
    return (x * 3,)


def detach_mul(x):
    x.detach().mul_(2)
    return (x * 3,)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n, x.argmax()

    @staticmethod
    def backward(ctx, g, _):
        (x,) = ctx.saved_tensors
        return g * ctx.n * x ** (ctx.n - 1), None


def through_view(x):
    x.view(-1)[2:5].mul_(3)
    return (x.sum(),)


def grad_mix(x, y):
    x.mul_(y)
    return x + 1, y


def nested(x):
    return {"a": x + 1, "b": [x * 2, 3, None, "s"], "c": (x,)}


def dropout(x):
    return (torch.nn.functional.dropout(x, 0.5, True) * torch.rand_like(x),)


def three_views(x):
    y = x * 2
    return y, y[0], y.t(), y.detach()


def two_views(x):
    y = x * 2
    return y[0], y[1:], y.unbind(0)[2]


def view_no_grad(x):
    with torch.no_grad():
        v = x[0]
    return v, x[1]


def dup(x):
    y = x + 1
    return y, y, x, x


def inplace_then_view(x):
    x.mul_(2)
    v = x[0]
    v.add_(1)
    return v, x.view(-1)


def unused(x, y):
    return (y.sin(),)


def int_out(x):
    return x.argmax(), x > 2, x.sum()


def random_unused(x):
    torch.rand(3)
    return (x * torch.rand(3, 4),)


def memory_formats(x):
    y = x.to(memory_format=torch.channels_last) * 2
    return y, y.permute(0, 2, 3, 1).contiguous(), x.transpose(1, 2) + 1


def counters(x, n, m, mean):
    """Changes that autograd does not see, of two dtypes, beside a loss: buffers of a batch norm."""
    n.add_(1)
    m.add_(2)
    mean.mul_(0.5)
    return (x * n + mean,)


CASES = {
    "counters": (counters, lambda: (A(), torch.tensor(1), torch.tensor([4, 5, 6, 7]), N())),
    "add": (lambda x: (x + 1,), mk(A)),
    "list output": (lambda x: [x + 1, x * 2], mk(A)),
    "single output": (lambda x: x + 1, mk(A)),
    "mutate no grad": (lambda x: (x.add_(1).mul_(2),), mk(N)),
    "mutate nonleaf": (lambda x: (x.add_(1).mul_(2) * 2,), mk(B)),
    "mutate with grad of other": (grad_mix, mk(N, A)),
    "mutate nonleaf by other": (grad_mix, mk(B, A)),
    "no_grad mutation of leaf": (no_grad_add, mk(A, A)),
    "data mutation": (data_mul, mk(A)),
    "data mutation no grad": (data_mul, mk(N)),
    "detach mutation": (detach_mul, mk(A)),
    "detach mutation no grad": (detach_mul, mk(N)),
    "through view": (through_view, mk(N)),
    "through view nonleaf": (through_view, mk(B)),
    "copy_": (lambda x, y: (x.copy_(y), x + y)[1:], mk(N, A)),
    "zero_": (lambda x: (x.zero_(), x + 1)[1:], mk(B)),
    "nested": (nested, mk(A)),
    "dropout": (dropout, mk(A)),
    "dropout no grad": (dropout, mk(N)),
    "views of intermediate": (three_views, mk(A)),
    "views of intermediate no grad": (three_views, mk(N)),
    "two views": (two_views, mk(A)),
    "two views no grad": (two_views, mk(N)),
    "views of input": (lambda x: (x[0], x.t(), x.view(-1), x.detach(), x), mk(A)),
    "views of input no grad": (lambda x: (x[0], x.t(), x.view(-1), x.detach(), x), mk(N)),
    "views of nonleaf": (lambda x: (x[0], x.t(), x.view(-1), x.detach(), x), mk(B)),
    "view under no_grad": (view_no_grad, mk(A)),
    "duplicates": (dup, mk(A)),
    "in-place then view": (inplace_then_view, mk(B)),
    "in-place then view no grad": (inplace_then_view, mk(N)),
    "unused input": (unused, mk(A, A)),
    "integers": (int_out, mk(A)),
    "random unused": (random_unused, mk(A)),
    "memory formats": (memory_formats, lambda: (leaf(2, 3, 4, 5),)),
    "reverse gradient": (lambda x: (Reverse.apply(x),), mk(A)),
    "reverse gradient times": (lambda x: (Reverse.apply(x) * x,), mk(A)),
    "custom function": (lambda x: Square.apply(x, 3), mk(A)),
    "conj": (
        lambda x: (x.conj(), x.conj() * 2, x.imag),
        lambda: (torch.randn(3, dtype=torch.complex64, requires_grad=True),),
    ),
    "as_strided": (lambda x: (x.as_strided((2, 2), (1, 2), 1), x * 1), mk(A)),
    "expand": (lambda x: (x.expand(2, 3, 4), (x * 2).expand(2, 3, 4)), mk(A)),
    "zero-size": (lambda x: (x[:0] * 2, x.new_empty(0)), mk(A)),
    "constants": (lambda x: (x, 1, "a", None, torch.float32), mk(A)),
    "new tensor": (lambda x: (torch.tensor([1.0, 2.0]), torch.ones(3), x), mk(A)),
    "no outputs": (lambda x: (), mk(A)),
    "partial mutation": (lambda x, y: (x[0].add_(1), y.sum())[1:], mk(N, A)),
    "views of a reshaped copy": (
        lambda x: ((y := (x * 2).t().reshape(-1)), y[1:], y.data, y.view(2, 6)),
        mk(A),
    ),
    "view of a matrix product": (lambda x: ((x[None] @ x.t()).view(-1), x[0][0]), mk(A)),
    "requires_grad unused grad": (lambda x, y: (x.detach() * 2, y * 2), mk(A, N)),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    fn, make = CASES[name]
    torch.manual_seed(0)
    check(fn, make, tol=1e-6 if name == "conj" else 0.0)


@pytest.mark.parametrize("name", CASES)
def test_case_without_grad(name):
    fn, make = CASES[name]
    with torch.no_grad():
        check(fn, make)


def random_integers(x):
    y = torch.empty_like(x.detach()).t().random_(-2, 90)
    return y, torch.zeros(3, dtype=torch.int64).random_(1, 9), torch.rand(2), x * 2


def test_random_integers_keep_the_order_of_memory():
    check(random_integers, lambda: (leaf(30, 40),))


def bernoulli_in_place(x):
    y = (x * 2).t()
    y.bernoulli_(0.4)
    return y, torch.bernoulli((x * 3).t().detach(), 0.3)


def test_random_fill_follows_memory_order():
    check(bernoulli_in_place, lambda: (leaf(30, 40),))


@pytest.mark.parametrize(
    ("fn", "text"), [(lambda x: (torch.add(torch.ones(5), 1, out=x),), "changed in place")]
)
def test_input_that_becomes_another_is_refused(fn, text):
    refuses(fn, lambda: (torch.empty(0),), text)


def test_gradient_into_shared_memory():
    def make():
        x = leaf(3, 4, grad=False)
        return x, x[1:], leaf(3, 4)

    def apart():
        x, y, w = make()
        return x, y.data, w

    fn = lambda a, b, w: (a.add_(w), b * 2)
    check(fn, make, tol=1e-6)
    refuses(fn, apart, "has a gradient")


def of_numbers(x):
    made = torch.add(7, 2)
    part = made.view(1)
    part.mul_(2)
    return made, part, x.add_(made)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (torch.floor_divide(7, 2), x * 2),
        lambda x: (torch.true_divide(7, 2), torch.add(1, 2).detach()),
        of_numbers,
    ],
)
def test_results_of_numbers_alone(fn):
    check(fn, mk(N))
    check(fn, mk(N), examples=dynamic)


def test_strides_after_in_place_operators():
    check(lambda x: (x.masked_fill_(x > 0, 0.5), x * 2), lambda: (leaf(4, 3, grad=False).t(),))
    check(
        lambda x: (x.unfold(-1, 1, 1)[0].add_(1), torch.where(x > 0, x, -x))[1:],
        lambda: (leaf(4, 3, grad=False).t(),),
    )


def test_version_counters_of_lists():
    check(lambda x, y: (torch._foreach_mul_([x, y], 2.0), None)[1:], mk(N, N))


def test_in_place_on_expanded_inside_a_function_is_refused():
    refuses(lambda x: (x.detach().expand(2, 3).zero_(),), lambda: (leaf(3),), "share memory")


def test_views_of_a_leaf_that_is_a_view():
    make = lambda: (torch.ones(5, 4)[1:4].requires_grad_(),)
    check(lambda x: (torch.no_grad()(lambda: x.narrow(-1, 0, 1))(), x[0]), make)
    check(lambda x: ((lambda v: v * v)(torch.no_grad()(lambda: x.narrow(-1, 0, 1))()), x * 2), make)


def image(images, channels, size):
    """Images in the order of channels-last memory, as a view of a tensor of another shape."""
    return leaf(images, size, size, channels, grad=False).permute(0, 3, 1, 2)


LAYOUTS = {
    "an image": lambda: image(1, 4, 6),
    "a channel": lambda: image(2, 1, 6),
    "a point": lambda: image(2, 4, 1),
    "one of the images": lambda: image(3, 4, 6)[1:2],
    "any stride": lambda: leaf(200, grad=False).as_strided((1, 4, 6, 6), (7, 1, 24, 4)),
    "images": lambda: image(2, 4, 6),
    "rows": lambda: leaf(3, 4, 6, 6, grad=False)[1:2],
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_strides_of_results_of_a_leaf_that_is_a_view(make):
    """The strides of dimensions of one element say the memory format of some results."""
    pad = lambda x: torch.nn.functional.pad(x, (3, 2, 2, 1), mode="replicate")
    for fn in (lambda x: (x.clone(), x * 2, torch.max_pool2d(x, 1)), lambda x: (pad(x), x[:1], x.view_as(x))):
        check(fn, lambda: (make().requires_grad_(),))


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_strides_of_results_of_a_view_that_gains_a_history(make):
    change = lambda x, w: (x.mul_(w), x.clone(), torch.max_pool2d(x, 1))[1:]
    check(change, lambda: (make(), leaf(1)), tol=1e-6)


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_strides_after_in_place_operators_with_another_layout(make):
    change = lambda x, y: (x.add_(y), x * 1, torch.max_pool2d(x, 1))[1:]
    check(change, lambda: (make(), torch.ones(make().shape)))
    check(lambda x, y: change(x * 2, y), lambda: (make().requires_grad_(), torch.ones(make().shape)))


def test_a_view_that_got_its_gradient_through_another_view():
    """Eager raises, as if it were a leaf, unless its ``grad_fn`` was read before: then it computes this."""
    check(
        lambda x, y: (x[0].add_(y.sum()), x.grad_fn, x.clamp_(-1, 1))[:0],
        lambda: (torch.linspace(-2, 2, 12).view(4, 3).t(), leaf(3)),
    )
