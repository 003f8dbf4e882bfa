"""Second derivatives that are zero or undefined: the crashes found, and a sample of the family in ``zero_derivatives``."""

import pytest
import torch
from zero_derivatives import VIEWS, crashed

import fxstack


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["abs", "sgn", "nn.functional.l1_loss"])
def test_second_derivatives_behind_views(name, view):
    assert crashed(name, view, "l1") is None


def test_the_first_derivative_of_the_sign_of_a_view():
    x = torch.randn(4, requires_grad=True)
    fxstack.compile(lambda x: x.view(2, 2).sgn() * x.view(2, 2), backend="aot_eager")(x).sum().backward()
    assert torch.equal(x.grad, x.sgn())


def test_a_known_zero_times_infinity_is_zero():
    def fn(x):
        return torch.autograd.grad(x.sqrt().view(2, 2).abs().sum(), x, create_graph=True)[0]

    outcomes = []
    for run in (fn, fxstack.compile(fn, backend="aot_eager")):
        x = torch.zeros(4, requires_grad=True)
        outcomes.append(torch.autograd.grad(run(x).sum(), x)[0])
    torch.testing.assert_close(*outcomes, equal_nan=True)
