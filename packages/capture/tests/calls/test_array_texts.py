"""Text of NumPy arrays and scalars of the trace."""

import array_texts
import numpy as np
import pytest
import torch

import fxstack_capture


@pytest.mark.parametrize("case", array_texts.FAMILY[::9], ids=" ".join)
def test_is_that_of_plain_python(case):
    assert array_texts.difference(*case) is None


def test_of_numbers_that_are_constants_is_a_constant():
    def fn(x):
        return x * len("x".join(map(str, np.array(x.shape))))

    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    x = torch.ones(2, 10)
    compiled = fxstack_capture.optimize(backend, fullgraph=True)(fn)
    assert torch.equal(compiled(x), fn(x))
    assert len(graphs) == 1
