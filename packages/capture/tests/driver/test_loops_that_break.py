"""Loops that break the graph: eager's results, and a number of graphs that depends neither on rounds nor on lengths."""

import random

import loop_programs
import pytest

SAMPLE = random.Random(1).sample(sorted(loop_programs.BODIES), 30)


@pytest.mark.parametrize("body", SAMPLE)
def test_sample(body):
    assert loop_programs.compare(body, "call") is None


@pytest.mark.parametrize("stop", loop_programs.BREAKS)
@pytest.mark.parametrize("body", ["modules", "index list", "append length", "no_grad", "method"])
def test_breaks(body, stop):
    assert loop_programs.compare(body, stop) is None
