"""Training under symbolic sizes: a sample of the family in ``dynamic_training_family``, and interpolation."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the customary name
from database_calls import IN_EAGER, Program, difference
from dynamic_training_family import cases, differences

MAY_RUN_IN_EAGER = {"to_sparse"}
"""Operators that a compiled graph does not take: a fallback of any other one is a defect."""


def check(case, backend):
    found = differences(*case, backend)
    assert found is None or (found.startswith(IN_EAGER) and case[0] in MAY_RUN_IN_EAGER), found


FOUND = (
    "nn.functional.dropout",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.ctc_loss",
    "nn.functional.mse_loss",
    "nn.functional.gaussian_nll_loss",
)
"""Of generators' states, of backwards without a meta function, and of divisors that are sizes."""


@pytest.mark.parametrize("name", FOUND)
def test_operators_that_differed(name):
    assert differences(name, "operator", True) is None


@pytest.mark.parametrize("case", cases()[::53], ids=str)
def test_steps_are_eagers(case):
    check(case, "aot_eager")


@pytest.mark.parametrize("case", cases()[::353], ids=str)
def test_kernels_are_eagers(case):
    check(case, "inductor")


INTERPOLATIONS = {
    "linear": (1, {"scale_factor": 2}),
    "bilinear": (2, {"scale_factor": 2}),
    "bicubic": (2, {"size": (7, 9)}),
    "trilinear": (3, {"scale_factor": 2}),
    "nearest": (3, {"scale_factor": 2}),
    "nearest-exact": (1, {"scale_factor": 2}),
}


@pytest.mark.parametrize("last", [False, True], ids=["", "channels_last"])
@pytest.mark.parametrize("mode", INTERPOLATIONS)
def test_interpolations_train_at_any_batch_size(mode, last):
    dims, kwargs = INTERPOLATIONS[mode]
    inputs = [torch.randn([batch, 3, 4, 5, 6][: dims + 2]) for batch in (2, 3, 5)]
    if last:
        inputs = [x.movedim(1, -1).contiguous().movedim(-1, 1) for x in inputs]
    sets = tuple([x.requires_grad_()] for x in inputs)
    program = Program(lambda: (lambda x: F.interpolate(x, mode=mode, **kwargs), []), sets)
    assert difference(program, lambda _t: 1e-5, backend="aot_eager") is None
