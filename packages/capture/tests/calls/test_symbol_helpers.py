"""torch's helpers for symbolic sizes answer for numbers from data without a graph break, as under torch.compile."""

import pytest
import torch
from torch.fx.experimental import symbolic_shapes

from fxstack_capture import CaptureOptions, native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
UNKNOWN = {"guard_or_false": 2, "guard_or_true": 1, "statically_known_true": 2, "has_free_symbols": 1}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_fact_that_depends_on_data(name):
    helper = getattr(symbolic_shapes, name)

    def program(x):
        number = (x > 0).sum().item()
        return x.sum() + (1 if helper(number == 3) else 2)

    compiled = optimize(fullgraph=True, options=CaptureOptions(capture_scalar_outputs=True))(program)
    for x in (torch.ones(3), torch.zeros(3)):
        assert compiled(x) == x.sum() + UNKNOWN[name]


@pytest.mark.parametrize("name", ["guard_or_false", "guard_or_true", "guard_size_oblivious"])
def test_a_fact_of_sizes_is_guarded(name):
    helper = getattr(symbolic_shapes, name)
    program = lambda x, y: x.sum() + (1 if helper(x.shape[0] == y.shape[0]) else 2)  # noqa: E731
    compiled = optimize(fullgraph=True, dynamic=True)(program)
    for sizes in ((3, 3), (4, 5), (6, 6), (5, 3)):
        given = tuple(map(torch.ones, sizes))
        assert torch.equal(compiled(*given), program(*given))
