"""Operators with effects: they run once each, in the program's order, in forwards and backwards alike."""

import torch
from beside_eager import Programs
from torch._higher_order_ops.effects import _register_effectful_op
from torch._library.effects import EffectType

program = Programs()
SEEN = []


def note_(tag, x=None):
    SEEN.append((tag, None if x is None else round(float(x.detach().sum()), 4)))


@torch.library.custom_op("fxstack_effects::say", mutates_args=())
def say(tag: str) -> None:
    note_(tag)


@torch.library.custom_op("fxstack_effects::tell", mutates_args=())
def tell(x: torch.Tensor, tag: str) -> None:
    note_(tag, x)


@torch.library.custom_op("fxstack_effects::note", mutates_args=())
def note(x: torch.Tensor, tag: str) -> torch.Tensor:
    note_(tag, x)
    return x.clone()


say.register_fake(lambda tag: None)
tell.register_fake(lambda x, tag: None)
note.register_fake(lambda x, tag: torch.empty_like(x))


def _backward(ctx, grad):
    return note(grad, f"gradient of {ctx.tag}"), None


def _setup(ctx, inputs, output):
    ctx.tag = inputs[1]


note.register_autograd(_backward, setup_context=_setup)
_register_effectful_op("fxstack_effects::note", EffectType.ORDERED)


def seen(*results):
    """The results and what has been noted since the last call."""
    noted = list(SEEN)
    SEEN.clear()
    return *results, noted


def mixed(x):
    say("begin")
    y = x * 2
    tell(y, "product")
    y = y + 1
    say("middle")
    tell(x, "input")
    note(y, "result that nobody uses")
    return note(y.exp(), "exponential") * 3


@program(graphs=1, breaks=0)
def without_gradient(c):
    f, x = c(mixed), torch.linspace(-1, 1, 4)
    return seen(f(x), f(x + 1))


@program(graphs=1, breaks=0)
def with_gradient(c):
    f, x = c(mixed), torch.linspace(-1, 1, 4).requires_grad_()
    y = f(x)
    y.sum().backward()
    return seen(y, x)


@program(graphs=1, breaks=0, dynamic=True)
def of_many_sizes(c):
    f = c(mixed)
    return seen([f(torch.linspace(-1, 1, n)) for n in (4, 6, 9)])


@program(graphs=1, breaks=0)
def around_changes_of_an_input(c):
    @c
    def f(x):
        tell(x, "before")
        x.add_(1)
        tell(x, "between")
        x.mul_(2)
        tell(x, "after")
        return x.sum()

    x = torch.linspace(-1, 1, 4)
    return seen(f(x), x)


@program(graphs=1, breaks=0)
def order_in_the_backward(c):
    @c
    def f(x, w):
        first = note(x * w, "first")
        say("between")
        return note(first.sin(), "second") + note(w * 2, "third")

    x, w = (torch.linspace(-1, 1, 4).requires_grad_() for _ in range(2))
    y = f(x, w)
    y.sum().backward()
    return seen(y, x, w)


@program(graphs=1, breaks=0)
def torch_s_own_print(c):
    @c
    def f(x):
        torch.ops.aten._print("fxstack prints")
        return x * 2

    return f(torch.ones(2))


test_program = program.tests()
