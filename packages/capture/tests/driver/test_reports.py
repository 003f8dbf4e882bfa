"""The texts of results: ``repr`` fits on a screen however large the program is, ``details`` has everything."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fxstack_capture import capture, explain
from fxstack_capture.driver.errors import GuardError
from fxstack_interchange.format.show import MAX_LINES, first_lines

SCREEN = 2000
X = torch.randn(4)


def deep(x):
    for _ in range(400):
        x = (x * 1.5).sin()
    return x


def broken(x, *more):
    for _ in range(30):
        x = x + 1
        torch._dynamo.graph_break()
    return x + sum(more)


class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(60))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


CALLS = [(deep, (X,)), (Wide(), (X,)), (broken, (X, *(torch.randn(4) for _ in range(50))))]


@pytest.mark.parametrize(("fn", "args"), CALLS)
def test_an_explanation_fits_on_a_screen(fn, args):
    found = explain(fn)(*args)
    assert len(repr(found)) <= SCREEN
    assert len(repr(found.frames[0])) <= 2 * SCREEN
    assert str(found) == first_lines(found.details())
    assert len(str(found).splitlines()) <= MAX_LINES
    assert found.frames[-1].code in found.details().replace("\n    ", "\n")


@pytest.mark.parametrize(("fn", "args"), CALLS[:2])
def test_a_captured_graph_fits_on_a_screen(fn, args):
    found = capture(fn, *args)
    assert max(len(repr(found)), len(repr(found.stage_graph))) <= SCREEN
    assert found.code in found.details()
    assert all(guard.source.name in found.details() for guard in found.guards)
    assert str(len(found.guards)) in repr(found)


def test_what_to_do_under_a_mode():
    layer = torch.nn.Linear(4, 3)
    found = capture(layer, X)
    with FlopCounterMode(display=False) as counter:
        with pytest.raises(GuardError, match=r"fix: .*FlopCounterMode.*graph_module"):
            found(X)
        assert torch.equal(found.graph_module(X, layer.weight, layer.bias)[0], layer(X))
    assert counter.get_total_flops() == 2 * 24


def test_an_error_names_the_parameter_of_forward():
    with pytest.raises(
        GuardError, match=r"captured: input: must be a .* sizes \(4\).*\n.*\n.*\nfix: capture again"
    ):
        capture(torch.nn.Linear(4, 3), X)(torch.randn(2, 4))
