"""What a backend assumes of symbolic sizes, when it traces the graph again, is guarded too."""

import pytest
import torch

from fxstack_capture import optimize


def sizes(inputs):
    return [value for value in inputs if isinstance(value, torch.SymInt)]


def one_size(inputs):
    for size in sizes(inputs):
        int(size)


def even_sizes(inputs):
    for size in sizes(inputs):
        bool(size % 2 == 0)


def nothing(inputs):
    return sizes(inputs)


@pytest.mark.parametrize(
    ("assume", "graphs"),
    [(one_size, [1, 2, 3, 3, 4]), (even_sizes, [1, 2, 3, 3, 3]), (nothing, [1, 2, 2, 2, 2])],
)
def test_graphs_after_lengths_4_5_6_5_8(assume, graphs):
    made = []

    def backend(graph, inputs):
        made.append(graph)
        assume(inputs)
        return graph.forward

    double = optimize(backend)(lambda x: x * 2)
    counts = []
    for length in (4, 5, 6, 5, 8):
        x = torch.ones(length)
        assert torch.equal(double(x), x * 2)
        counts.append(len(made))
    assert counts == graphs
