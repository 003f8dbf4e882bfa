"""Elementwise operators of equal operands: the rule runs once, and each result has its own operands."""

import pytest
import torch
from inductor_checks import check

from fxstack_inductor.lower.context import Context

X = [torch.randn(3, 4) for _ in range(6)]


@pytest.fixture
def made(monkeypatch):
    """Return the list of the nodes for which rules make tensors."""
    names, plain = [], Context.pointwise

    def pointwise(self, *args):
        names.append(self.current)
        return plain(self, *args)

    monkeypatch.setattr(Context, "pointwise", pointwise)
    return names


def test_a_rule_runs_once(made):
    check(lambda *xs: tuple(x.mul(y).add(y, alpha=2).sigmoid() for x, y in zip(xs, xs[1:], strict=False)), *X)
    # add with alpha, its factor and sigmoid are made of several operators
    assert len(made) <= 4


@pytest.mark.parametrize(
    ("name", "call", "count"),
    [
        ("shapes", lambda x, y: (x * y, x[0] * y[0], x * y[0], x[0] * y), 4),
        ("strides", lambda x, y: (x * y, x.t() * y.t()), 2),
        ("one operand twice", lambda x, y: (x * y, x * x, y * x, y * y), 2),
        ("numbers", lambda x, y: (x * 2, y * 2, x * 2.0, x * True), 3),
        ("signs of zero", lambda x, y: (x.abs() * 0.0, y.abs() * -0.0), 3),
        ("dtypes", lambda x, y: (x * y, x.double() * y.double(), x.half() * y.half()), 5),
        ("names", lambda x, y: (x.clamp(min=0.5), x.clamp(max=0.5), y.clamp(min=0.5)), 2),
        ("rounds", lambda x, y: (x.half() * 3, (x.half() * 3).floor()), 5),
    ],
)
def test_what_a_rule_sees_is_compared(made, name, call, count):
    compiled = check(call, *X[:2])
    for result, eager in zip(compiled(*X[:2]), call(*X[:2]), strict=True):
        assert torch.equal(result.signbit(), eager.signbit())
    assert len(made) == count, made


def test_numbers_of_the_host_are_operands(made):
    number = torch.tensor(2.5)
    check(lambda n, *xs: tuple(x * n.item() for x in xs), number, *X)
    assert len(made) == 1
