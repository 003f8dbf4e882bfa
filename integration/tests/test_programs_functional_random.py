"""Programs that draw random numbers, in graphs that are functions of the generator's state."""

import torch
from beside_eager import Programs
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

program = Programs()
X = torch.arange(4.0) + 1
PURE = {"functional_random": True}


def leaf():
    return (torch.arange(4.0) + 1).requires_grad_()


@program(options=PURE, graphs=1, breaks=0)
def draws_and_writes(c):
    @c
    def f(x):
        x.add_(torch.rand(4))
        return {"a": [torch.rand(2), x], "b": (x.view(2, 2), F.dropout(x), torch.randperm(5))}

    x = X.clone()
    return f(x), f(x), x


@program(options=PURE, graphs=1, breaks=0)
def training_with_dropout(c):
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 4))
    compiled = c(model)
    for _ in range(3):
        compiled(torch.ones(3, 4)).sin().sum().backward()
    return model


@program(options=PURE, graphs=1, breaks=0)
def checkpoints_with_dropout(c):
    model = nn.Linear(4, 4)

    def region(x):
        return F.dropout(model(x).sin(), 0.5).exp()

    def f(x):
        once = checkpoint(region, x, use_reentrant=False)
        return checkpoint(region, once, use_reentrant=False).sum()

    compiled, x = c(f), leaf()
    for _ in range(2):
        compiled(x).backward()
    return x, model


@program(options=PURE, graphs=1, breaks=0)
def a_second_derivative_through_dropout(c):
    x = leaf()
    f = c(lambda x: (F.dropout(x, 0.5) ** 3).sum())
    (first,) = torch.autograd.grad(f(x), x, create_graph=True)
    first.sum().backward()
    return x, first


@program(options=PURE, backend="aot_eager", dynamic=True, graphs=1, breaks=0)
def symbolic_sizes(c):
    f = c(lambda x: x + torch.rand(x.shape[0]) + F.dropout(x))
    return [f(torch.ones(n)) for n in (3, 4, 6)]


@program(options=PURE, backend="aot_eager", graphs=1, breaks=0)
def attention_with_and_without_dropout(c):
    q = torch.randn(1, 2, 8, 4)
    attention = F.scaled_dot_product_attention
    f = c(lambda q: (attention(q, q, q), attention(q, q, q, dropout_p=0.5)))
    return f(q), f(q)


test_programs = program.tests()
