"""Both compilers in one process: what torch's own changes in torch when it is first used."""

import torch

import fxstack

X, TARGET = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])


def loss(x):
    return torch.nn.CrossEntropyLoss()(x, TARGET) + torch.nn.Identity()(x).sum()


def test_modules_made_inside_stay_in_the_graph():
    """torch.compile wraps ``Module.__init__``, to mark modules that are made late."""
    torch.compile(lambda x: x + 1, backend="eager")(X)
    assert "patched_init" in torch.nn.Module.__init__.__qualname__
    compiled = fxstack.compile(loss)
    torch.testing.assert_close(compiled(X), loss(X))
    assert fxstack.compile_log(compiled).graph_count == 1
    assert not fxstack.compile_log(compiled).breaks


def test_optimizers_stay_in_the_graph():
    """torch.compile disables ``_init_group`` of every optimizer."""
    weight = torch.nn.Parameter(X.clone())
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    torch.compile(lambda x: x + 1, backend="eager")(X)
    compiled = fxstack.compile(step)
    compiled(X)
    assert not fxstack.compile_log(compiled).breaks
    torch.testing.assert_close(weight.detach(), X - 0.1 * X)
