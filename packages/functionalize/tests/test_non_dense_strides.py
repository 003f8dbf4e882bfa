"""Inputs between whose elements there are others, changed in place: what gives a view and what a copy of them."""

import pytest
import torch
from compare import check, refuses


def gapped():
    return (torch.arange(24.0).view(4, 6)[1:, :5],)


def turned():
    return (torch.arange(24.0).view(4, 6)[1:, :5].t(),)


def trained():
    root = torch.arange(24.0).view(4, 6).mul_(0.1).requires_grad_()
    x = (root * 1.5)[1:, :5]
    x.root = root
    return (x,)


def then(change, ask, between=lambda x: x.add_(1)):
    """Change the input, ask for its memory or a copy, and change it again."""

    def program(x):
        change(x)
        asked = ask(x)
        between(x)
        return asked.sum(), asked, x * 1

    return program


def double(x):
    x.mul_(2)


ASK = {
    "reshape": lambda x: x.reshape(-1),
    "flatten": torch.flatten,
    "ravel": lambda x: x.ravel(),
    "contiguous": lambda x: x.contiguous(),
    "format": lambda x: x.to(memory_format=torch.contiguous_format),
    "like another": lambda x: x.reshape_as(torch.empty(15)),
    "of a part": lambda x: x[:2].reshape(-1),
    "of a row": lambda x: x[1].reshape(-1),
    "detached": lambda x: x.detach().reshape(-1),
    "operator": lambda x: torch.ops.aten.reshape(x, [-1]),
}
CHANGE = {
    "mul_": double,
    "part": lambda x: x[1:].mul_(2),
    "detach": lambda x: x.detach().mul_(2),
    "setitem": lambda x: x.__setitem__(0, 3.0),
    "mask": lambda x: x.masked_fill_(x > 1, 0.5),
    "copy": lambda x: x.copy_(torch.arange(x.numel()).view(x.shape)),
    "list": lambda x: torch._foreach_mul_([x], 2.0),
    "twice": lambda x: x.mul_(2).add_(1),
}


@pytest.mark.parametrize("make", [gapped, turned, trained])
@pytest.mark.parametrize("name", ASK)
def test_what_is_asked_for(name, make):
    check(then(double, ASK[name]), make, tol=1e-6)


@pytest.mark.parametrize("name", CHANGE)
def test_what_changes_it(name):
    check(then(CHANGE[name], ASK["reshape"]), gapped)
    check(then(CHANGE[name], ASK["contiguous"], double), trained, tol=1e-6)


def test_a_result_is_written_to_it():
    check(then(lambda x: torch.mul(x, 2, out=x), ASK["reshape"]), gapped)


def test_places_in_its_memory_are_refused():
    refuses(then(double, lambda x: x.as_strided((2,), (6,))), gapped, "outside of the tensor")
