"""Random numbers from generators of the program's own."""

import torch
from beside_eager import Programs, attempt
from torch import nn

program = Programs()
X = torch.ones(4)


@program(graphs=1, breaks=0)
def a_generator_beside_the_default_one(c):
    generator = torch.Generator().manual_seed(5)

    @c
    def f(x, g):
        first = x + torch.rand(4, generator=g)
        return first, torch.rand(4), torch.randn((2, 3), generator=g, dtype=torch.float64)

    return [f(X, generator) for _ in range(3)], generator.get_state()


@program(backend="aot_eager", graphs=1, breaks=0)
def another_generator_in_each_call(c):
    f = c(lambda x, g: x + torch.rand(4, generator=g))
    generators = [torch.Generator().manual_seed(n) for n in range(3)]
    return [f(X, g) for g in generators * 2], [g.get_state() for g in generators]


@program(backend="aot_eager")
def the_default_generator_in_a_later_call(c):
    def f(x, g):
        return x + torch.rand(4), torch.rand(4, generator=g), torch.rand(4)

    compiled = c(f)
    return compiled(X, torch.Generator().manual_seed(1)), compiled(X, torch.default_generator)


@program(backend="aot_eager", breaks=0)
def one_generator_twice(c):
    def f(x, g, h):
        return torch.rand(2, generator=g), torch.rand(2, generator=h), torch.rand(2, generator=g), x

    compiled, g, h = c(f), torch.Generator(), torch.Generator()
    return compiled(X, g, h), compiled(X, g, g), g.get_state(), h.get_state()


@program(backend="aot_eager", breaks=0)
def a_generator_that_is_seeded(c):
    generator = torch.Generator()

    @c
    def f(x, seed):
        before = torch.rand(2, generator=generator)
        same = generator.manual_seed(3) is generator
        return before, torch.randint(0, 9, (2,), generator=generator), same, generator.device, x

    return f(X, 3), f(X, 3), generator.get_state(), generator.initial_seed()


@program(backend="aot_eager", breaks=0)
def every_kind_of_draw(c):
    g = torch.Generator().manual_seed(1)

    @c
    def f(x):
        torch.set_default_dtype(torch.float64)
        wide = torch.rand(2, generator=g)
        torch.set_default_dtype(torch.float32)
        noise = torch.normal(1.0, 2.0, (2, 2), generator=g)
        noise.mul_(2)
        return (wide, noise, noise.t(), torch.randperm(5, generator=g), torch.randint(5, (2,), generator=g))

    return f(X), f(X), g.get_state()


@program(backend="aot_eager", breaks=0)
def noise_in_training(c):
    generator, model = torch.Generator().manual_seed(0), nn.Linear(4, 4)

    @c
    def f(x):
        mask = (torch.rand(4, generator=generator) < 0.5).float()
        return (model(x) * mask + torch.randn(4, generator=generator)).sin().sum()

    for _ in range(3):
        f(X).backward()
    return model, generator.get_state()


@program(backend="aot_eager")
def draws_around_a_break_and_an_error(c):
    g = torch.Generator().manual_seed(0)

    @c
    def f(x, limit):
        first = torch.rand(4, generator=g)
        if (x > limit).any():
            raise ValueError("too large")
        second = torch.empty(4).uniform_(generator=g)
        return first, second, torch.rand(4, generator=g) + x

    return f(X, 2), attempt(f, X, 0.5), f(X, 2), g.get_state()


@program(backend="aot_eager")
def draws_that_are_errors_or_leaves(c):
    g = torch.Generator().manual_seed(0)

    @c
    def f(x, size):
        leaf = torch.rand(2, generator=g, requires_grad=True)
        return torch.rand(size, generator=g), leaf, x + 1

    return attempt(f, X, -1), attempt(f, X, 2), attempt(f, X, (2, 1)), g.get_state()


test_equals_eager = program.tests()


@program(backend="aot_eager", graphs=1, breaks=0)
def tensors_that_are_filled(c):
    generator = torch.Generator().manual_seed(2)

    @c
    def f(x, g):
        y = torch.empty(20, dtype=torch.float64).normal_(1.0, 2.0, generator=g)
        x.uniform_(-1, 1, generator=g)
        same = x[:2].exponential_(generator=g).mul_(2)
        picked = torch.empty(5, dtype=torch.int64).random_(3, 9, generator=g)
        kept = (
            torch.empty(2, 3).bernoulli_(0.4, generator=g),
            nn.init.xavier_normal_(torch.empty(2, 3), generator=g),
        )
        return y, same, picked, kept, torch.rand(2), torch.empty(3).normal_()

    inputs = [torch.ones(4) for _ in range(3)]
    return [f(x, generator) for x in inputs], inputs, generator.get_state()


@program(backend="aot_eager", graphs=1, breaks=0)
def a_tensor_as_diffusion_pipelines_make_it(c):
    def f(x, g):
        like = {"device": x.device, "dtype": x.dtype, "layout": torch.strided}
        return torch.randn(x.shape, generator=g, **like) + x

    compiled, generator = c(f), torch.Generator().manual_seed(2)
    return [compiled(X, generator) for _ in range(3)]


@program(backend="aot_eager")
def a_fill_that_depends_on_data(c):
    f = c(
        lambda x, g: (torch.empty(4).bernoulli_(x / 4, generator=g), torch.ones(2, 2).T.normal_(generator=g))
    )
    return f(X, torch.Generator().manual_seed(2))
