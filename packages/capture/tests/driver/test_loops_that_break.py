"""Loops that break the graph: eager's results, and a number of graphs that depends neither on rounds nor on lengths."""

import random

import loop_programs
import pytest
import torch
from counting import Counting

import fxstack_capture as fx
from fxstack_capture.driver.errors import TracingWarning
from fxstack_capture.driver.frame_policy import builtins_in_use

SAMPLE = random.Random(1).sample(sorted(loop_programs.BODIES), 30)


@pytest.mark.parametrize("body", SAMPLE)
def test_sample(body):
    assert loop_programs.compare(body, "call") is None


@pytest.mark.parametrize("stop", loop_programs.BREAKS)
@pytest.mark.parametrize("body", ["modules", "index list", "append length", "no_grad", "method"])
def test_breaks(body, stop):
    assert loop_programs.compare(body, stop) is None


class Traces:
    """How many frames were traced."""

    count = 0

    def on_trace(self, _seconds):
        self.count += 1

    def on_break(self, _record):
        pass


def test_the_end_of_a_loop_does_nothing():
    """It is compiled like every round, so it is neither traced in each call, nor are the rounds of other calls left alone."""
    layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(6))

    def f(x):
        for layer in layers:
            x = layer(x)
            fx.graph_break()
        return x

    backend, traces, counts = Counting(), Traces(), []
    compiled = fx.optimize(backend, observer=traces)(f)
    x = torch.ones(2, 3)
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled):
            for _ in range(4):
                assert torch.equal(compiled(x), f(x))
                counts.append((len(backend.graphs), traces.count))
    assert counts[0] == counts[3] == (2, 3)
    assert counts[4] == counts[7] == (4, 6)


def test_modules_called_by_plain_code_are_passed_at_once(monkeypatch):
    """Beyond the limit a frame runs in plain Python; each call of a layer in it comes to the compiler, which asks nothing."""
    layers = {"a" * n: torch.nn.Linear(3, 3) for n in range(1, 12)}

    def f(x):
        for name in layers:
            x = layers[name](x)
            fx.graph_break()
        return x

    compiled = fx.optimize(Counting())(f)
    x = torch.ones(2, 3)
    with pytest.warns(TracingWarning, match="recompile_limit"):
        compiled(x)
    asked = []
    monkeypatch.setattr(builtins_in_use, "replaced_in_libraries", lambda: asked.append(1))
    assert torch.equal(compiled(x), f(x))
    assert not asked
