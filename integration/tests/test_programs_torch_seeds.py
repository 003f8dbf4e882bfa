"""The default generator, seeded, saved and put back inside of compiled code."""

import torch
from beside_eager import Programs, attempt
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

program = Programs()
X = torch.arange(4.0) + 1


def leaf():
    return (torch.arange(4.0) + 1).requires_grad_()


def seeded(x):
    before = torch.rand(2)
    same = torch.manual_seed(3) is torch.default_generator
    drawn = F.dropout(x, 0.5), x[torch.randperm(4)]
    torch.random.manual_seed(-4)
    return before, drawn, same


@program(breaks=0)
def a_seed_that_changes(c):
    @c
    def f(x, seed):
        torch.manual_seed(seed)
        return x + torch.rand(4)

    return [f(X, seed) for seed in range(4)], torch.rand(2)


def forked(x):
    first = torch.rand(2)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        inside = torch.rand(4) + x
    state = torch.get_rng_state()
    drawn = torch.rand(3)
    torch.set_rng_state(state)
    return first, inside, drawn, torch.rand(3), state


def twice(fn):
    """A program: two calls of ``fn``, and what the generator gives afterwards."""

    def calls(c):
        f = c(fn)
        return f(X), f(X), torch.rand(2)

    calls.__name__ = fn.__name__
    return calls


for drawing in (seeded, forked):
    program(graphs=1, breaks=0)(twice(drawing))
    pure = twice(drawing)
    pure.__name__ += "_in_a_pure_graph"
    program(graphs=1, breaks=0, options={"functional_random": True})(pure)


@program(backend="aot_eager", graphs=1, breaks=0)
def a_state_from_outside(c):
    @c
    def f(x, state):
        torch.set_rng_state(state)
        return torch.rand(4) + x

    state = torch.get_rng_state()
    return f(X, state), f(X, state), torch.rand(2)


@program(graphs=1, breaks=0)
def training_under_a_seed(c):
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))

    @c
    def step(x):
        torch.manual_seed(7)
        first = model(x)
        torch.manual_seed(8)
        return (first * checkpoint(model, x, use_reentrant=False)).sum()

    for _ in range(2):
        step(torch.ones(3, 4)).backward()
    return model


@program(backend="aot_eager")
def errors(c):
    @c
    def f(x, place):
        torch.manual_seed(3)
        return torch.rand(4) + x[place]

    found = [attempt(f, X, torch.tensor([place])) for place in (1, 9)]
    broken = [
        attempt(c(torch.manual_seed), "no number"),
        attempt(c(lambda: torch.set_rng_state(torch.ones(3)))),
    ]
    return found, broken, torch.rand(2)


@program(backend="aot_eager", graphs=1, breaks=0)
def the_default_generator_by_name(c):
    @c
    def f(x):
        return x + torch.rand(4, generator=torch.default_generator)

    return f(X), f(X), torch.rand(2)


test_programs = program.tests()
