"""A rule takes every argument that its operator has, as the dispatcher passes it."""

import inspect

import pytest
import torch
from inductor_checks import check

from fxstack_inductor.lower.rules import RULES

# The dispatcher leaves these out of no call.
_ALWAYS_GIVEN = {"reduce", "start", "step"}


@pytest.mark.parametrize("operator", RULES, ids=str)
def test_every_argument_is_accepted(operator):
    arguments = operator._schema.arguments
    by_place = [a.name for a in arguments if not a.kwarg_only]
    by_name = {a.name: None for a in arguments if a.kwarg_only}
    signature = inspect.signature(RULES[operator])
    signature.bind(None, *by_place, **by_name)
    given = {name: None for name in by_name if name in _ALWAYS_GIVEN}
    signature.bind(None, *by_place, **given)


def test_scaled_sums_of_numbers():
    x = torch.randn(5)
    check(lambda x: (torch.rsub(x, 1, alpha=2), torch.add(x, 2, alpha=0.3), x.sub(3, alpha=2)), x)
