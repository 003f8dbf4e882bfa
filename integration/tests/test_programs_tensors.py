"""Tensors in unusual forms around a compiled call: aliasing, mutation, dtypes, layouts, sizes, gradients."""

import warnings

import numpy as np
import torch
from beside_eager import Programs, attempt
from torch.utils.checkpoint import checkpoint

program = Programs()


def vector(n=4):
    return torch.linspace(-1, 1, n)


def matrix(rows=3, columns=4):
    return torch.linspace(-1, 1, rows * columns).reshape(rows, columns)


@program(graphs=1, breaks=0)
def in_place_on_input(c):
    @c
    def f(x):
        y = x.add_(1)
        x.mul_(2)
        return y, y is x, x.sin()

    x = vector()
    return x, f(x), f(x), x._version


@program(graphs=2, breaks=0)
def in_place_on_a_result_of_or(c):
    @c
    def f(z, c):
        m = z[:, None] | z[None] & z[:, None]
        m |= c
        m &= z
        return m

    warnings.simplefilter("error")  # a graph that runs in eager warns
    return [f(torch.arange(n) > 2, torch.eye(n, dtype=torch.bool)) for n in (4, 5, 7)]


@program(graphs=1, breaks=0)
def assigned_data_of_a_parameter(c):
    @c
    def f(p, x):
        before = x.data.exp()
        p.data = p.data * 0.5
        x.data = p.data + before
        return (p * p * x).sum() + p.sin().sum()

    p = torch.nn.Parameter(vector())
    f(p, vector()).backward()
    x = vector()
    f(p, x).backward()
    return p, p.grad, x


@program(graphs=1, breaks=0)
def in_place_on_view_of_input(c):
    @c
    def f(x):
        v = x[1:]
        v.zero_()
        w = x.view(-1)
        w[0] = 5
        return v, w, x * 2

    x = vector().clone()
    y = vector().clone()
    return x, f(x), y, f(y)


@program(graphs=1, breaks=0)
def outputs_alias(c):
    @c
    def f(x):
        y = x * 2
        return x, x[0], x.t(), y, y.t(), y[0], y.view(-1), x.detach(), x.expand_as(x), y

    x = matrix().clone()
    return x, f(x), f(x)


@program(graphs=1, breaks=0)
def outputs_alias_with_gradients(c):
    @c
    def f(x, w):
        y = x * w
        return y.t(), y, x.view(-1), w[0], y.detach()

    x, w = matrix().clone().requires_grad_(), matrix().clone().requires_grad_()
    out = f(x, w)
    (out[0].sum() + out[1].cos().sum() + out[2].sin().sum() + out[3].sum()).backward()
    return x, w, out


@program()
def same_tensor_twice(c):
    @c
    def f(x, y):
        x.add_(1)
        return x * y, x is y

    a, b = vector().clone(), vector().clone()
    return f(a, b), f(a, a), a, b, f(b, a)


@program()
def overlapping_inputs(c):
    @c
    def f(x, y):
        x.add_(1)
        return x * y

    a = vector(8).clone()
    return f(a[:4], a[2:6]), a, f(a[:4], a[4:]), a, f(a, a.view(8)), a


@program(breaks=0)
def many_dtypes(c):
    @c
    def f(x, y):
        return x + y, x * 2, x / 3, (x == y), x.sum(), -x, x.to(torch.float32).mean()

    kinds = [torch.int64, torch.int32, torch.uint8, torch.float64, torch.bfloat16, torch.float16]
    return [f(torch.arange(4).to(k), torch.ones(4, dtype=k)) for k in kinds]


@program()
def bool_and_complex(c):
    b = c(lambda x, y: (x & y, x | ~y, x.any(), x.sum(), x ^ y))
    z = c(lambda x: (x * x.conj(), x.real, x.imag.sum(), x.abs(), torch.view_as_real(x), x.conj()))
    m = torch.tensor([True, False, True])
    v = torch.tensor([1 + 2j, 3 - 1j])
    return b(m, ~m), z(v), z(v.conj())


@program(breaks=0)
def promotion(c):
    @c
    def f(i, h, d, s):
        return (i + 1.5, i / i, h + s, d + h, h * 2.5, i + s, torch.where(i > 1, h, 0.0), i // 2, i % 2, i**2)

    i = torch.arange(1, 4)
    return f(i, i.to(torch.bfloat16), i.double(), torch.tensor(2.5))


@program(breaks=0)
def zero_dimensional_and_empty(c):
    @c
    def f(x, e):
        return (
            x * 2,
            x.sum(),
            x.view(1),
            x.expand(3),
            e + 1,
            e.sum(),
            torch.cat([e, e]),
            e.t() if e.dim() == 2 else e,
        )

    return (
        f(torch.tensor(3.0), torch.empty(0)),
        f(torch.tensor(2), torch.empty(0, 3)),
        f(vector(1)[0], torch.empty(2, 0)),
    )


@program(breaks=0)
def reductions_of_empty(c):
    f = c(lambda e: (e.sum(0), e.prod(), e.mean(), e.all(), e.any(), e.sum(1), e.cumsum(0)))
    g = c(lambda e: e.max())
    return f(torch.empty(0, 3)), f(torch.empty(3, 0)), attempt(g, torch.empty(0))


@program(breaks=0)
def broadcasting(c):
    f = c(lambda x, y: (x + y, x * y.unsqueeze(-1), torch.maximum(x, y), x - y))
    return f(vector(4), vector(1)), f(matrix(4, 4), vector(4)), f(vector(1), vector(4))


@program(breaks=0)
def not_contiguous(c):
    f = c(lambda x: (x + 1, x.sin().t(), x.contiguous(), x.clone(), torch.zeros_like(x), x.sum(0), x.exp_()))
    x = matrix(4, 6)
    return (f(x.clone().t()), f(x.clone()[:, ::2]), f(x.clone()[1:, 1:]), f(torch.stack([x, x], -1)[..., 0]))


@program(breaks=0)
def expanded_input(c):
    f = c(lambda x: (x * 2, x.sum(0), x.clone(), x.contiguous()))
    return f(vector().expand(3, 4)), f(vector(1).expand(3, 4))


@program(breaks=0)
def channels_last(c):
    m = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1, bias=False), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
    )
    f = c(m)
    x = torch.randn(2, 3, 5, 5)
    a, b = f(x), f(x.to(memory_format=torch.channels_last))
    (a.sum() + b.sum()).backward()
    return a, b, m


@program(breaks=0)
def changing_batch_size(c):
    m = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2)
    )
    f = c(m)
    outs = [f(torch.randn(n, 4)) for n in (2, 3, 5, 7, 11, 1, 13)]
    sum(o.sum() for o in outs).backward()
    return outs, m


@program(breaks=0)
def changing_lengths_of_two_inputs(c):
    @c
    def f(x, y):
        return (
            torch.cat([x, y]).cumsum(0),
            x.shape[0] * y.shape[0],
            x.new_zeros(y.shape[0] + 1),
            x.sum() / len(y),
        )

    return [f(vector(a), vector(b)) for a, b in ((2, 3), (4, 5), (5, 4), (6, 6), (9, 2), (1, 1), (0, 3))]


@program(breaks=0)
def reshape_with_dynamic_sizes(c):
    @c
    def f(x):
        b, t, d = x.shape
        h = x.view(b, t, 2, d // 2).transpose(1, 2)
        return ((h @ h.transpose(-1, -2)).softmax(-1), h.reshape(b * 2, -1), x.flatten(1), x.chunk(2, -1))

    return [f(torch.randn(b, t, 6)) for b, t in ((2, 3), (2, 5), (3, 4), (4, 4))]


@program(breaks=0)
def toggled_requires_grad(c):
    f = c(lambda x, w: (x * w).sin().sum())
    x, w = vector().clone(), vector().clone()
    out = [f(x, w)]
    w.requires_grad_()
    out.append(f(x, w))
    out[-1].backward()
    w.requires_grad_(False)
    x.requires_grad_()
    out.append(f(x, w))
    out[-1].backward()
    return out, x, w


@program(breaks=0)
def grad_modes_outside(c):
    m = torch.nn.Linear(4, 2)
    f = c(m)
    x = matrix()
    out = [f(x)]
    with torch.no_grad():
        out.append(f(x))
    with torch.inference_mode():
        y = f(x)
        out.append((y.is_inference(), y.clone().tolist()))
    with torch.set_grad_enabled(False):
        out.append(f(x))
    out.append(f(x))
    out[-1].sum().backward()
    return out, m


@program(breaks=0)
def grad_modes_inside(c):
    @c
    def f(x, w):
        with torch.no_grad():
            a = x * w
        b = x * w
        with torch.enable_grad():
            d = b * 2
        with torch.set_grad_enabled(False):
            e = torch.is_grad_enabled(), d + 1
        return a, b, d, e, torch.is_grad_enabled()

    x, w = vector().clone().requires_grad_(), vector().clone()
    out = f(x, w)
    out[2].sum().backward()
    with torch.no_grad():
        other = f(x, w)
    return out, other, x


@program(breaks=0)
def left_grad_mode_changed(c):
    @c
    def f(x):
        torch.set_grad_enabled(False)
        return x * 2

    x = vector().clone().requires_grad_()
    out = f(x), torch.is_grad_enabled(), x * 2
    torch.set_grad_enabled(True)
    return out


@program(breaks=0)
def autocast_inside_and_outside(c):
    m = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    def inside(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = m(x)
        return y, y.float().softmax(-1)

    f, g = c(inside), c(m)
    x = matrix()
    out = [f(x), g(x)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out.append(g(x))
    out.append(g(x))
    return out


@program()
def inference_mode_inside(c):
    @c
    def f(x):
        with torch.inference_mode():
            return x * 2

    y = f(vector())
    return y.is_inference(), y.tolist()


@program(graphs=1, breaks=0)
def gradients_accumulate_and_zero(c):
    m = torch.nn.Linear(4, 2)
    f = c(m)
    seen = []
    for step in range(4):
        f(matrix() + step).sum().backward()
        seen.append(m.weight.grad.clone())
        if step == 1:
            m.zero_grad()
    return seen, m


@program()
def double_backward(c):
    f = c(lambda x: (x**3).sum())
    x = vector().clone().requires_grad_()
    (g,) = torch.autograd.grad(f(x), x)
    return g


@program(breaks=0)
def retain_graph_and_second_backward_error(c):
    f = c(lambda x: (x.sin() * x).sum())
    x = vector().clone().requires_grad_()
    y = f(x)
    y.backward(retain_graph=True)
    y.backward()
    return attempt(y.backward)[0], x


@program(breaks=0)
def partial_gradients(c):
    @c
    def f(x, y):
        return x * y, x.exp(), y.cos().detach(), (x > 0)

    x, y = vector().clone().requires_grad_(), vector().clone().requires_grad_()
    a, b, d, e = f(x, y)
    gx = torch.autograd.grad(b.sum(), x, retain_graph=True)
    gy = torch.autograd.grad(a.sum(), (x, y), retain_graph=True)
    unused = torch.autograd.grad(b.sum(), y, allow_unused=True)
    return gx, gy, unused, d, e


@program(breaks=0)
def in_place_on_leaf_error(c):
    f = c(lambda x: x.add_(1))
    x = vector().clone().requires_grad_()
    first = attempt(f, x)
    with torch.no_grad():
        f(x)
    return first, x


@program(breaks=0)
def in_place_on_intermediate_with_grad(c):
    @c
    def f(x):
        y = x * 2
        y.mul_(x)
        y[0] = 0
        z = y[1:]
        z += x[1:]
        y.relu_()
        return y.sum()

    x = vector().clone().requires_grad_()
    f(x).backward()
    return x


@program(breaks=0)
def mutate_non_leaf_input_with_grad(c):
    @c
    def f(y, w):
        y.mul_(w)
        return y.sin()

    x, w = vector().clone().requires_grad_(), vector().clone().requires_grad_()
    y = x * 3
    z = f(y, w)
    (z.sum() + y.sum()).backward()
    return x, w, y.detach()


@program()
def in_place_then_saved_tensor_error(c):
    f = c(lambda x: x.exp())
    x = vector().clone().requires_grad_()
    y = f(x)
    y.mul_(2)
    return attempt(y.sum().backward)[0]


@program()
def tensor_hooks_inside(c):
    seen = []

    @c
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return y.sin().sum()

    x = vector().clone().requires_grad_()
    f(x).backward()
    x.register_hook(lambda g: seen.append(g.clone()))
    f(x).backward()
    return x, seen


@program()
def backward_inside(c):
    @c
    def f(x, w):
        loss = (x * w).sum()
        loss.backward()
        return loss.detach(), w.grad * 2

    w = vector().clone().requires_grad_()
    return f(vector(), w), f(vector(), w), w


@program()
def autograd_grad_inside(c):
    @c
    def f(x):
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad((x**2).sum(), x)
        return g * 2

    return f(vector()), f(vector())


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x**3 * k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 100 * x * ctx.k, None


@program(breaks=0)
def autograd_function(c):
    f = c(lambda x: Cube.apply(x.sin(), 2).sum())
    x = vector().clone().requires_grad_()
    f(x).backward()
    with torch.no_grad():
        y = f(x)
    return x, y


@program(breaks=0)
def straight_through(c):
    f = c(lambda x: ((x.round() - x).detach() + x).pow(2).sum())
    x = (vector() * 3).clone().requires_grad_()
    f(x).backward()
    return x


@program()
def checkpointed(c):
    m = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(4, 4)
    )
    f = c(lambda x: checkpoint(m, x, use_reentrant=False).sum())
    x = matrix().clone().requires_grad_()
    f(x).backward()
    f(x).backward()
    return x, m


TABLE = torch.tensor([1.0, 2, 3])
NORM = torch.nn.BatchNorm1d(3)
HELD = [TABLE * 2, {"a": TABLE + 1}]


class Found:
    table = TABLE * 3


def finds(forward, backward):
    """A custom function of an input and a gradient, whose methods find other tensors outside."""

    class Finds(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, TABLE)
            return forward(x)

        @staticmethod
        def backward(ctx, g):
            x, table = ctx.saved_tensors
            return backward(g) * table + x

    return Finds


@program(graphs=1, breaks=0)
def autograd_functions_that_find_tensors(c):
    closed = TABLE * 5
    functions = [
        finds(lambda x: x * TABLE, lambda g: g * 2),
        finds(lambda x: x * 2, lambda g: torch.addcmul(g, g, TABLE, value=2)),
        finds(lambda x: x.clone().add_(closed), lambda g: torch.where(closed > 5, g, -g)),
        finds(lambda x: (x - NORM.running_mean) / NORM.running_var.sqrt(), lambda g: g / NORM.running_var),
        finds(lambda x: x * HELD[0] + HELD[1]["a"], lambda g: torch.stack([g[0], HELD[0]])),
        finds(lambda x: x * Found.table[1:2], lambda g: g * Found.table.expand(2, 3)),
    ]
    f = c(lambda x: [function.apply(x.sin()) for function in functions])
    x = torch.full((2, 3), 0.5).requires_grad_()
    for _ in range(2):
        sum(y.sum() for y in f(x)).backward()
    return f(x), x.grad


@program()
def exception_in_backward(c):
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("in backward")

    f = c(lambda x: Bad.apply(x).sum())
    x = vector().clone().requires_grad_()
    return attempt(lambda: f(x).backward()), attempt(lambda: f(x).backward())


@program()
def sparse_input(c):
    f = c(lambda s, x: torch.sparse.mm(s, x) + 1)
    s = torch.eye(4).to_sparse()
    return f(s, matrix(4, 2)), f(s, matrix(4, 2))


@program()
def tensor_subclass(c):
    class Tagged(torch.Tensor):
        pass

    @c
    def f(x):
        return x + 1, type(x + 1) is Tagged

    x = vector().as_subclass(Tagged)
    a, b = f(x)
    return type(a) is Tagged, a.as_subclass(torch.Tensor), b, f(vector())


@program()
def subclass_with_torch_function(c):
    class Logged(torch.Tensor):
        log = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.log.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs or {})

    f = c(lambda x: (x * 2).sin())
    x = vector().as_subclass(Logged)
    Logged.log.clear()
    y = f(x)
    return y.as_subclass(torch.Tensor), [n for n in Logged.log if n in ("mul", "sin")]


@program()
def resize_and_set_data(c):
    @c
    def f(x, y):
        x.data = y * 2
        return x + 1

    x = vector().clone()
    return f(x, vector()), x


@program()
def data_dependent_shapes(c):
    f = c(lambda x: (x[x > 0], torch.nonzero(x), x.unique(), torch.masked_select(x, x < 0).sum()))
    return f(vector()), f(vector(7)), f(vector() + 5)


@program(breaks=0)
def attributes_of_tensors(c):
    @c
    def f(x):
        x.tag = "seen"
        return (
            x.shape,
            x.dtype,
            x.device,
            x.requires_grad,
            x.is_contiguous(),
            x.numel(),
            x.stride(),
            x.ndim,
            x.grad is None,
            x.is_leaf,
        )

    x = matrix()
    return f(x), x.tag, f(x.t())


@program(breaks=0)
def grad_set_to_none(c):
    p = torch.nn.Parameter(vector().clone())

    @c
    def step():
        p.data.add_(p.grad, alpha=-0.1)
        p.grad = None

    for _ in range(3):
        (p**2).sum().backward()
        step()
    return p


@program()
def numpy_conversion(c):
    f = c(lambda x: torch.from_numpy(x.numpy() * 2) + 1)
    return f(vector()), f(vector())


@program(breaks=0)
def constants_made_inside(c):
    @c
    def f(x):
        t = torch.tensor([1.0, 2.0, 3.0, 4.0])
        n = torch.tensor(len(x))
        return (
            x + t,
            n,
            torch.arange(4),
            torch.full((2,), 3),
            torch.eye(2),
            torch.linspace(0, 1, 4) + x,
            torch.tensor([[1, 2], [3, 4]]),
        )

    return f(vector()), f(vector())


@program(breaks=0)
def constant_mutated_inside(c):
    @c
    def f(x):
        t = torch.tensor([1.0, 2.0, 3.0, 4.0])
        t.add_(x)
        return t

    return f(vector()), f(vector())


@program(breaks=0)
def pre_existing_tensor_returned(c):
    table = vector()
    f = c(lambda x: (x + table, table, table[1:]))
    a, b = f(vector()), f(vector())
    return table, a, b


@program(breaks=0)
def rng_state(c):
    @c
    def f(x):
        return (
            torch.rand(4) + x,
            torch.randn_like(x),
            torch.nn.functional.dropout(x, 0.5),
            torch.randint(0, 9, (3,)),
            torch.randperm(5),
            torch.bernoulli(x.abs()),
        )

    return f(vector()), f(vector()), torch.rand(2)


@program()
def seed_inside(c):
    @c
    def f(x):
        torch.manual_seed(7)
        return torch.rand(4) + x

    return f(vector()), f(vector()), torch.rand(2)


@program()
def generator_argument(c):
    g = torch.Generator().manual_seed(3)
    f = c(lambda x: torch.rand(4, generator=g) + x)
    return f(vector()), f(vector()), torch.rand(1, generator=g)


@program(graphs=1, breaks=0)
def numpy_between_tensors(c):
    @c
    def f(x):
        a = x.numpy()
        scores = np.exp(a - a.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
        return torch.from_numpy(scores), torch.from_numpy(np.sort(a.T, axis=0)), a.shape, a.max()

    return f(matrix()), f(matrix())


@program(breaks=0)
def numpy_arrays_as_state(c):
    class Tracker:
        def __init__(self):
            self.total, self.count = np.zeros(4), 0

        def update(self, x):
            self.total += x.detach().numpy().sum(axis=0)
            self.count += 1
            return torch.from_numpy(self.total / self.count)

    tracker = Tracker()
    update = c(tracker.update)
    x = matrix().requires_grad_()
    return [update(x * k) for k in range(4)], torch.from_numpy(tracker.total), tracker.count


@program()
def numpy_gradients_stop(c):
    f = c(lambda x: (x * float(np.float32(2)) + torch.from_numpy(np.ones(4, np.float32))).sum())
    x = vector().requires_grad_()
    f(x).backward()
    return x, attempt(c(lambda x: (x * 2).numpy()), x)


@program(breaks=0)
def views_of_another_dtype_that_require_grad(c):
    pairs = torch.linspace(-2, 3, 48).reshape(4, 6, 2).requires_grad_()
    z = torch.view_as_complex(pairs.detach() * 2).requires_grad_()
    views = [torch.view_as_complex(pairs)[1:3], torch.view_as_complex(pairs * 1), z.real.t()[1:]]
    views += [z.conj().imag, torch.view_as_real(z), z.mH, (z * 1).conj()[1:], (z * 1).real]
    read = [c(lambda x: x * 2 + x.sum())(view) for view in views]
    written = [c(lambda x: (x[0].mul_(3), x.t() + 1))((z * 1).conj()) for _ in range(2)]
    sum((x.abs() ** 2).sum() for x in [*read, *written[0], *written[1]]).backward()
    return read, written, pairs.grad, z.grad, [(x.is_conj(), x.is_neg()) for x in read]


@program(graphs=1, breaks=0)
def all_parts_of_a_parameter_in_place(c):
    whole = torch.ones(40, requires_grad=True)
    parts = whole.split(10)
    step = c(lambda *parts: [part.mul_(k + 2).sum() for k, part in enumerate(parts)])
    with torch.no_grad():
        return step(*parts), whole


@program(graphs=1, breaks=0)
def values_that_require_grad_where_a_mask_says(c):
    """The tokens of images in the embeddings of a text."""
    warnings.simplefilter("error")  # a graph that cannot be compiled warns, and runs in eager torch
    images = matrix(3, 4).requires_grad_()
    texts = matrix(5, 4).requires_grad_()
    mask = torch.tensor([False, True, True, False, True])

    @c
    def f(texts, images, mask):
        embeddings = texts * 2
        embeddings[mask] = images.tanh()
        return embeddings.softmax(-1)

    f(texts, images, mask)[:, 1].sum().backward()
    return texts, images


test_tensors = program.tests()
