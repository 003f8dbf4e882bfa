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
