"""Inputs that share memory, one of which is changed in place."""

import pytest
import torch
from compare import check, compiled, dynamic, refuses
from test_semantics import leaf


def overlapping():
    base = torch.arange(12.0)
    return base[:8].view(2, 4), base[4:].view(4, 2)


def base_and_slice():
    base = torch.arange(12.0).view(3, 4)
    return base, base[1]


def base_and_prefix():
    base = torch.arange(12.0).view(3, 4)
    return base, base[:2]


def disjoint():
    base = torch.arange(12.0)
    return base[:4], base[4:8]


def twice():
    x = torch.arange(4.0)
    return x, x


def separate_counters():
    x = torch.arange(6.0)
    return x, x.data.view(2, 3)


PROGRAMS = {
    "change first": lambda x, y: (x.add_(1), y.sum())[1:],
    "change second": lambda x, y: (y.mul_(2), x * 1)[1:],
    "change both": lambda x, y: (x.add_(1), y.mul_(2), x.sum() + y.sum())[2:],
    "return all": lambda x, y: (x.add_(1), y, x[0], y.sum(), y.t() if y.dim() == 2 else y[1:]),
    "change a view": lambda x, y: (x[0].add_(5), y.view(-1) * 1)[1:],
}
MAKERS = [overlapping, base_and_slice, disjoint, twice, separate_counters]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("make", MAKERS)
def test_shared_inputs(name, make):
    check(PROGRAMS[name], make)


def parts(*bounds):
    base = torch.arange(12.0)
    return tuple(base[start:stop] for start, stop in bounds)


def change_two(a, b, c):
    a.add_(1)
    c.mul_(5)
    return b.sum()


def change_two_pairs(a, b, c, d):
    a.add_(1)
    d.mul_(5)
    return b.sum() + c.sum()


def test_all_that_is_changed_in_a_storage_is_one_base():
    check(change_two, lambda: parts((0, 4), (2, 6), (8, 12)))
    check(change_two_pairs, lambda: parts((0, 4), (2, 5), (6, 9), (8, 12)))


def test_a_changed_input_that_comes_into_the_storage_runs_in_eager():
    function = compiled(change_two, (*parts((0, 4), (2, 6)), torch.arange(4.0)))
    a, b, c = parts((0, 4), (2, 6), (8, 12))
    assert function(a, b, c) == 2 + 3 + 4 + 5 + 2
    assert a.tolist() == [1, 2, 3, 4]
    assert c.tolist() == [40, 45, 50, 55]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("make", [twice, base_and_prefix])
def test_shared_inputs_of_symbolic_sizes(name, make):
    check(PROGRAMS[name], make, examples=dynamic)


def test_inputs_that_begin_to_share_run_in_eager():
    fn = PROGRAMS["change first"]
    function = compiled(fn, (torch.arange(4.0), torch.arange(4.0)))
    x, y = twice()
    assert function(x, y)[0] == torch.arange(1.0, 5).sum()
    a, b = torch.arange(4.0), torch.arange(4.0)
    assert function(a, b)[0] == b.sum()


def test_inputs_that_stop_sharing_run_in_eager():
    function = compiled(PROGRAMS["change first"], overlapping())
    x, y = (t.clone() for t in overlapping())
    expected = y.sum()
    assert function(x, y)[0] == expected


def test_shared_inputs_with_gradient_are_refused():
    def make():
        x = leaf(3, 4) * 1
        return x, x[0]

    refuses(PROGRAMS["change first"], make, "share memory")
