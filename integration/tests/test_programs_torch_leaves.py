"""Leaves that compiled code makes: parameters, modules, and results that require grad for their sake."""

import warnings

import torch
from beside_eager import Programs, attempt
from torch import nn

program = Programs()


@program(graphs=1, breaks=0)
def parameter_used_and_dropped(c):
    @c
    def f(x):
        weight = nn.Parameter(torch.ones(3) * 2)
        return (x * weight).sum(), isinstance(weight, nn.Parameter), weight.requires_grad

    y, *facts = f(torch.ones(3))
    y.backward()
    return y, y.is_leaf, facts


@program(graphs=1, breaks=0)
def gradient_of_a_parameter_that_was_made_inside(c):
    @c
    def f(x):
        weight = nn.Parameter(torch.ones(3))
        (x * weight.exp()).sum().backward()
        return weight.grad

    return f(torch.arange(3.0))


@program(graphs=1, breaks=0)
def modules_made_inside(c):
    @c
    def f(x):
        model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
        names = [name for name, _ in model.named_parameters()]
        return model(x), names, sum(p.numel() for p in model.parameters())

    torch.manual_seed(0)
    x = torch.randn(5, 3, requires_grad=True)
    y, *facts = f(x)
    y.square().sum().backward()
    return y, facts, x.grad, torch.rand(1)


class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        if not hasattr(self, "scale"):
            self.scale = nn.Parameter(torch.ones(3) * 2)
            self.fixed = nn.Parameter(self.scale.detach().clone(), requires_grad=False)
            self.register_buffer("offset", torch.ones(3))
        return self.linear(x) * self.scale + self.fixed + self.offset


@program(breaks=0)
def parameters_made_at_the_first_call(c):
    model = Late()
    compiled = c(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the first graph gives new leaves and runs in eager
        for _ in range(2):
            compiled(torch.ones(2, 3)).sum().backward()
    facts = [(name, type(p), p.requires_grad) for name, p in model.named_parameters()]
    return facts, [p.grad for p in model.parameters()], dict(model.named_buffers())


@program(breaks=0)
def parameter_over_the_memory_of_an_argument(c):
    @c
    def f(x):
        return nn.Parameter(x[1:], requires_grad=False)

    x = torch.zeros(3)
    made = f(x)
    x += 1
    return made, type(made), made.data_ptr() == x[1:].data_ptr()


@program()
def parameters_that_torch_refuses(c):
    return [
        attempt(c(lambda x, dtype=dtype: nn.Parameter(x.to(dtype))), torch.ones(2))
        for dtype in (torch.int64, torch.bool)
    ]


@program(graphs=1, breaks=0)
def results_that_require_grad_for_a_leaf_inside(c):
    @c
    def f(x):
        weight = torch.ones(3, requires_grad=True)
        y = x * weight
        return y, y * 2, weight.detach(), y.detach()

    out = f(torch.arange(3.0))
    (out[0] + out[1]).sum().backward()
    return out, [t.is_leaf for t in out]


@program(graphs=1, breaks=0)
def hooks_of_a_module_that_is_made_inside(c):
    @c
    def f(x):
        model = nn.Linear(3, 3)
        handle = model.register_forward_hook(lambda module, args, out: out * 2)
        first = model(x)
        handle.remove()
        return first, model(x)

    torch.manual_seed(0)
    return f(torch.ones(2, 3))


test_equals_eager = program.tests()
