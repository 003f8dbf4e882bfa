"""How inputs relate: the same object, shared memory, torch's state at the time."""

from __future__ import annotations

import warnings

import pytest
import torch

import fxstack_capture
from fxstack_capture.driver.errors import TracingWarning


class Counted:
    """``fn`` compiled, and how many graphs that took."""

    def __init__(self, fn):
        self.fn = fn
        self.graphs = []
        self.compiled = fxstack_capture.optimize(self.backend)(fn)

    def backend(self, gm, _):
        self.graphs.append(gm)
        return gm

    def check(self, make):
        theirs, ours = make(), make()
        a, b = self.fn(*theirs), self.compiled(*ours)
        assert torch.equal(a, b) and a.requires_grad == b.requires_grad
        for x, y in zip(theirs, ours, strict=True):
            assert torch.equal(x, y)
        return len(self.graphs)


def apart():
    return torch.ones(3), torch.ones(3)


def same():
    z = torch.ones(3)
    return z, z


def overlapping(start):
    def make():
        z = torch.arange(6.0)
        return z[:3], z[start : start + 3]

    return make


def views():
    z = torch.ones(3)
    return z.view(3), z


def write(a, b):
    a.add_(1)
    return a + b


def read(a, b):
    return a * 2 + b


def test_writing():
    f = Counted(write)
    assert f.check(apart) == 1
    assert f.check(same) == 2
    for make in (overlapping(2), overlapping(1), views, apart, same):
        f.check(make)
    assert f.check(apart) == f.check(same)


def test_overlap_first():
    f = Counted(write)
    for make in (overlapping(2), overlapping(1), apart, same, views, overlapping(2)):
        f.check(make)


def test_reading_needs_no_guard_about_memory():
    f = Counted(read)
    for make in (apart, overlapping(1), overlapping(2), views):
        assert f.check(make) == 1
    assert f.check(same) == 2


@pytest.mark.parametrize(
    ("change", "undo"),
    [
        (lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True)),
        (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
        (lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.set_autocast_enabled("cpu", False)),
        (lambda: torch.use_deterministic_algorithms(True), lambda: torch.use_deterministic_algorithms(False)),
    ],
    ids=["grad", "dtype", "autocast", "deterministic"],
)
def test_state_at_entry_is_guarded(change, undo):
    f = Counted(lambda a, b: a @ b + torch.ones(3))
    make = lambda: (torch.eye(3, requires_grad=True), torch.eye(3))
    assert f.check(make) == 1
    try:
        change()
        assert f.check(make) == 2
    finally:
        undo()
    assert f.check(make) == 2


def test_default_device_is_guarded():
    f = Counted(lambda a, b: a + torch.ones(3))
    assert f.check(apart) == 1
    with torch.device("cpu"):
        assert f.check(apart) == 2


def test_a_view_that_has_been_given_other_memory_than_its_base():
    """For autograd it is a view still: such a tensor has no stand-in, and nothing is reported as a defect."""

    def fn(x):
        y = x * 1
        view = y.reshape(3, 1)
        view.data = view * 2
        torch._dynamo.graph_break()
        view.add_(1)
        return view * y

    x = torch.ones(3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TracingWarning)
        made = fxstack_capture.optimize()(fn)(x)
    assert torch.equal(made, fn(x))
