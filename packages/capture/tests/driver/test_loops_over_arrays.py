# ruff: noqa: NPY002 - the global generator breaks the graph
"""A function that computes NumPy arrays in a loop runs in plain Python if its graph breaks."""

import numpy as np
import pytest
import torch
from running import Graphs

import fxstack_capture
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


def rows(count):
    """Random numbers, in a loop that depends on them."""
    found = np.zeros((count, 2), dtype=np.int64)
    for row in range(count):
        drawn = np.random.permutation(count)
        found[row] = [n for n in drawn if n != row][:2]
    return found


def scaled(x, count):
    """Compute a tensor in the same loop."""
    for row in range(count):
        if np.random.permutation(count)[0] != row:
            x = x * 2
    return x


def program(x, count):
    return x.sin() + torch.from_numpy(rows(count)).sum()


def compiled(fn, *args):
    """Return the number of pieces of a call and the names of the compiled functions; compare with plain Python."""
    graphs = Graphs()
    optimized = fxstack_capture.optimize(graphs, dynamic=False)(fn)
    optimized.callback.__self__.records = records = []
    for seed in range(3):
        np.random.seed(seed)
        expected = fn(*args)
        state = np.random.get_state()[1].tolist()
        np.random.seed(seed)
        assert torch.equal(torch.as_tensor(optimized(*args)), torch.as_tensor(expected))
        assert np.random.get_state()[1].tolist() == state
    names = [record.name for record in records if record.verdict.name == "COMPILED"]
    return len(names), set(names)


def test_the_graph_breaks_once_at_the_call():
    assert compiled(program, torch.ones(3), 6) == (2, {"program"})


def test_a_function_with_tensors_is_compiled():
    assert compiled(lambda x: scaled(x, 4), torch.ones(3))[0] > 2


def test_the_function_of_the_user_is_compiled():
    assert compiled(rows, 6)[1] == {"rows"}
