"""Floats that change between calls and leave the range of a dtype: eager refuses them in some operators."""

import pytest
import torch

import fxstack

ONES = torch.ones(3)
HALVES = torch.ones(3, dtype=torch.half)

PROGRAMS = {
    "factor": (lambda x, v: x.add(1, alpha=v), ONES),
    "elements": (lambda x, v: torch.full((2,), v) + x[0], ONES),
    "bound": (lambda x, v: x.clamp(max=v), HALVES),
    "choice": (lambda x, v: torch.where(x > 0, x, v), ONES),
    "integers": (lambda x, v: torch.full((2,), v, dtype=torch.int32) + x[0], ONES),
    "product": (lambda x, v: x * v > v, HALVES),
}


def outcome(fn, *args):
    try:
        return fn(*args)
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_range(name):
    fn, x = PROGRAMS[name]
    raised = []

    def backend(graph, _inputs):
        def run(*args):
            result = outcome(graph, *args)
            raised.extend([result] * isinstance(result, str))
            return result

        return run

    ours = fxstack.compile(fn, backend=backend)
    for number in (1.5, 2.5, 1e308, 7e4, -1e39, 3.5):
        mine, eager = outcome(ours, x, number), outcome(fn, x, number)
        assert (mine == eager) if isinstance(eager, str) else torch.equal(mine, eager)
    assert raised == []  # kernels of a compiler would not check the number
