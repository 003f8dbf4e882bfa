"""The modules around each operation: paths as ``named_modules`` has them, classes, and no guards."""

import pytest
import torch
from torch import nn

import fxstack_capture as fx

X = torch.randn(2, 4)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)
        self.acts = nn.ModuleDict({"first": nn.Tanh(), "second": nn.GELU()})

    def forward(self, x):
        for act in self.acts.values():
            x = act(self.up(x))
        return x.sin()


class Derived(Block):
    def forward(self, x):
        def later():
            return self.up(x)  # so that ``self`` is in a cell

        return super().forward(x) + later()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Derived()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.cos()


def paths(fn, *args):
    """The paths of the innermost modules of all operations, in order, without repetitions."""
    nodes = [n for n in fx.capture(fn, *args).graph_module.graph.nodes if n.op.startswith("call")]
    stacks = [list(n.meta.get("nn_module_stack", {}).values()) for n in nodes]
    return list(dict.fromkeys(stack[-1] if stack else None for stack in stacks))


def test_paths_are_those_of_named_modules():
    model = Model()
    kinds = {path: type(module).__qualname__ for path, module in model.named_modules()}
    found = paths(model, X)
    assert {path for path, _ in found} == {
        path for path, kind in kinds.items() if kind != "ModuleList" and kind != "ModuleDict"
    }
    assert all(kind.endswith(f".{kinds[path]}") for path, kind in found)


def test_modules_of_other_variables_begin_with_their_names():
    encoder, pair = Block(), [nn.ReLU(), nn.Tanh()]

    def fn(x):
        return pair[1](encoder(x)).exp()

    found = paths(fn, X)
    assert ("encoder.up", "torch.nn.modules.linear.Linear") in found
    assert ("pair.1", "torch.nn.modules.activation.Tanh") in found
    assert None in found


def test_a_module_made_inside_has_a_class_alone():
    assert paths(lambda x: nn.Tanh()(x), X) == [("", "torch.nn.modules.activation.Tanh")]


@pytest.mark.parametrize("other", [lambda x: x.forward(), lambda x: x.forward(2)])
def test_another_forward_is_no_module(other):
    class Plain:
        def forward(self, by=1):
            return X.sin() * by

    assert paths(lambda: other(Plain())) == [None]
