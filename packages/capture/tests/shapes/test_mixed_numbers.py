"""Symbolic integers beside bools and floats compare and compute as in Python, at every size."""

import random

import mixed_numbers
import pytest
import torch

import fxstack_capture


@pytest.mark.parametrize("case", random.Random(1).sample(mixed_numbers.WITH_BOOLS, 24), ids=str)
def test_bools_are_integers(case):
    assert mixed_numbers.with_bool(*case) == []


@pytest.mark.parametrize("case", random.Random(1).sample(mixed_numbers.WITH_FLOATS, 24), ids=str)
def test_integers_are_compared_with_floats_exactly(case):
    assert mixed_numbers.with_float(*case) == []


@pytest.mark.parametrize("text", ["h // h == n", "h - h == (n == 3)", "h ** 0 == n", "n == h // h"])
def test_found(text):
    scope = {}
    exec(f"def fn(x, n):\n    h = x.shape[0]\n    return {text}, x * 2", scope)
    calls = [(torch.ones(size), n) for size, n in ((4, 2), (5, 1), (6, True), (7, False))]
    assert mixed_numbers.differences(scope["fn"], calls) == []


def test_a_comparison_with_a_fraction_serves_all_integers():
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    fn = fxstack_capture.optimize(backend)(lambda x: x * 2 if x.shape[0] > 2.5 else x)
    for size in range(3, 9):
        fn(torch.ones(size))
    assert len(graphs) == 2  # one for the first size, one for the others
