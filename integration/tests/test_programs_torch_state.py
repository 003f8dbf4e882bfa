"""What surrounds tensors in programs: compiled functions inside compiled functions, modules, contexts."""

import pytest
import torch
from beside_eager import beside_eager
from torch import nn

PROGRAMS = {}


def program(**options):
    def register(fn):
        PROGRAMS[fn.__name__] = (fn, options)
        return fn

    return register


@program(graphs=2, breaks=0)
def compiled_function_in_a_compiled_function(c):
    inner = c(lambda x: x.sin() + 1)
    outer = c(lambda x: (inner(x) * 2, inner))
    x = torch.randn(3, requires_grad=True)
    y, same = outer(x)
    y.sum().backward()
    return y, same is inner, x, inner(torch.randn(3))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.count = 0

    def forward(self, x):
        self.count += 1
        return self.linear(x)


@program(breaks=0)
def compiled_module_in_a_compiled_training_step(c):
    model = Counting()
    compiled = c(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @c
    def step(x):
        optimizer.zero_grad()
        loss = compiled(x).pow(2).mean()
        seen = compiled.count
        loss.backward()
        optimizer.step()
        compiled.count += 1
        return loss.detach(), seen, model.count, compiled.linear.weight is model.linear.weight

    return [step(torch.randn(2, 3)) for _ in range(3)], model, model.count


@program(graphs=1, breaks=0)
def compiled_submodule(c):
    model = nn.Sequential(c(nn.Linear(3, 3)), nn.ReLU(), nn.Linear(3, 3))
    model[2].forward = c(model[2].forward)
    y = c(model)(torch.randn(2, 3))
    y.sum().backward()
    return y, [p.grad for p in model.parameters()], list(model.state_dict())


@program(graphs=1, breaks=0)
def compiled_method(c):
    class Scale:
        def __init__(self):
            self.by = 1

        def apply(self, x):
            self.by += 1
            return x * self.by

    Scale.apply = c(Scale.apply)
    scale = Scale()
    return c(lambda x: scale.apply(x) + 1)(torch.randn(3)), scale.by


@program(breaks=0)
def objects_that_share_their_dictionary(c):
    class Shared:
        pass

    a, b = Shared(), Shared()
    b.__dict__ = a.__dict__
    a.n = 1

    @c
    def f(x):
        a.n += 1
        y = x * b.n
        b.n = 10
        return y * a.n

    return f(torch.randn(3)), a.n, b.n, f(torch.randn(3)), a.n


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name):
    fn, options = PROGRAMS[name]
    beside_eager(fn, **options)
