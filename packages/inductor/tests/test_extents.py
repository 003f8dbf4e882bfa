"""A sample of the family of ``helpers/extents.py``: operators at extents of 0 to 3. All of it: ``sweeps/extents.py``."""

import pytest
import torch
import torch.nn.functional as F
from extents import PROGRAMS, cases, differences
from inductor_checks import FAST, check

SAMPLE = [*PROGRAMS][::5]
KINDS = ("float32", "int64", "bool", "bfloat16", "uint8", "float16")


@pytest.mark.parametrize(("name", "dtype"), [(n, KINDS[k % len(KINDS)]) for k, n in enumerate(SAMPLE)])
def test_operators_at_small_extents(name, dtype):
    made = cases(name, dtype)
    few = made[:: max(1, len(made) // 4)]
    assert differences(name, dtype, FAST, few) == []


def test_the_family_has_cases():
    assert len(cases("set", "float32")) > 100


EMPTY = [((1,), (0,)), ((1, 3), (0, 3)), ((3, 1), (3, 0)), ((1, 1), (2000, 0)), ((3, 1, 1), (3, 5, 0))]
OF_NOTHING = {
    "points": lambda x: (x.sin() * 2, torch.where(x > 0, x, -x)),
    "sums": lambda x: (x.sum(-1), x.sum(), (x > 0).any(0), x.prod(0)),
    "scans": lambda x: (x.cumsum(0), x.cumprod(-1)),
    "normalised": lambda x: (x.softmax(-1), F.layer_norm(x, x.shape[-1:])),
    "joined": lambda x: (torch.cat([x, x * 2], -1), F.pad(x, (1, 1))),
    "added": lambda x: torch.zeros(4).scatter_add(0, torch.zeros(x.numel(), dtype=torch.long), x.reshape(-1)),
}


@pytest.mark.parametrize("sizes", EMPTY, ids=str)
@pytest.mark.parametrize("name", OF_NOTHING)
def test_expanded_tensors_without_elements_have_no_address(name, sizes):
    """What all points share is read before a loop, which here has no points."""
    before, after = sizes
    check(OF_NOTHING[name], torch.randn(before).expand(after))


@pytest.mark.parametrize("empty", [torch.randn(1).expand(0), torch.randn(0), torch.randn(0, 1)])
def test_what_lies_beside_loops_without_points_is_computed(empty):
    for other in (torch.randn(1), torch.randn(5)):
        check(lambda x, k: (x.exp(), k * 0.5, x.sum(), k.sum()), empty, other)
        check(lambda x, k: (x.sum() + k, k.softmax(0), x.cumsum(0)), empty, other)
    check(lambda x, k: (torch.hypot(k, x) * 2, k * 0.5), empty, torch.randn(1))
