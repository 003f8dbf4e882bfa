"""Other tracers and modes around compiled calls: a sample of the family in ``tracer_family``."""

import inspect

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from tracer_family import FORMS, cases, differences

import fxstack


@pytest.mark.parametrize("case", cases()[::6], ids=str)
def test_what_is_traced_is_eagers(case):
    assert differences(*case) is None


@pytest.mark.parametrize("form", FORMS)
def test_kernels_are_eagers(form):
    assert differences(form, "module inside", True, False, "inductor") is None


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_recomputation_that_stops_inside(backend):
    fn = lambda x: (y := x.sin()) * y.exp()
    gradients = []
    for f in (fn, fxstack.compile(fn, backend=backend)):
        x = torch.ones(3, requires_grad=True)
        checkpoint(f, x, use_reentrant=False).sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_forward_of_a_module_has_its_signature():
    linear = torch.nn.Linear(2, 2)
    assert inspect.signature(fxstack.compile(linear).forward) == inspect.signature(linear.forward)
