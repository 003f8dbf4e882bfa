"""``mode="safe"``: each call is served by one side, and the side that takes less time stays."""

import pytest
import torch

import fxstack
from fxstack.safe import TIMED, WARM_UP, Choice, Trial

ENOUGH = WARM_UP + TIMED + 1


class Sides:
    """Two callables with the same results, which a clock of their own says take ``compiled`` and ``eager`` seconds."""

    def __init__(self, compiled, eager, *, backward=0.0, number=0):
        self.now, self.served, self.choices = 0.0, [], []
        make = lambda name, seconds: lambda x: self.serve(name, seconds, x)  # noqa: E731
        sides = make("compiled", compiled), make("eager", eager)
        self.trial = Trial(*sides, number, self.choices.append, clock=lambda: self.now)
        self.backward = backward

    def serve(self, name, seconds, x):
        self.served.append(name)
        # With gradients the difference comes after the call, in the backward.
        later = x.requires_grad
        self.now += 1.0 if later else seconds
        self.after = seconds if later else 0.0
        return (x * 2,)

    def run(self, calls=ENOUGH, x=None):
        x = torch.ones(2) if x is None else x
        for _ in range(calls):
            assert torch.equal(self.trial(x)[0], x * 2)
            self.now += self.after
        return self


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(
    ("seconds", "kept"), [((1, 2), "compiled"), ((2, 1), "eager"), ((1, 0.99), "compiled")]
)
@pytest.mark.parametrize("x", [torch.ones(2), torch.ones(2, requires_grad=True)])
def test_the_faster_is_kept(number, seconds, kept, x):
    sides = Sides(*seconds, number=number).run(x=x)
    assert [choice.kept for choice in sides.choices] == [kept]
    assert set(sides.run(5, x).served[-5:]) == {kept}


def test_every_call_is_served_once():
    assert len(Sides(1, 2).run().served) == ENOUGH


def test_what_was_measured_is_recorded():
    assert Sides(3, 2, number=5).run().choices == [Choice(5, "eager", 3.0, 2.0)]


def test_graphs_alternate_in_orthogonal_patterns():
    served = [Sides(1, 1, number=n).run(WARM_UP + TIMED).served[WARM_UP:] for n in range(3)]
    signs = [[1 if name == "eager" else -1 for name in names] for names in served]
    products = [sum(map(int.__mul__, a, b)) for a in signs for b in signs]
    assert products == [TIMED, 0, 0, 0, TIMED, 0, 0, 0, TIMED]


def test_a_training_loop_is_eagers():
    def steps(model, optimizer):
        torch.manual_seed(1)
        losses = []
        for _ in range(ENOUGH + 3):
            loss = torch.nn.functional.dropout(model(torch.randn(4, 8)), 0.3).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def build():
        torch.manual_seed(0)
        layers = [torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2)]
        model = torch.nn.Sequential(*layers)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    (ours, optimizer), (theirs, reference) = build(), build()
    compiled = fxstack.compile(ours, mode="safe")
    assert steps(compiled, optimizer) == pytest.approx(steps(theirs, reference), rel=1e-5)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    (choice,) = fxstack.compile_log(compiled).choices
    assert choice.kept in {"compiled", "eager"}


def test_inference_is_eagers():
    compiled = fxstack.compile(lambda x, y: (x @ y).softmax(-1), mode="safe")
    for k in range(ENOUGH):
        x, y = torch.randn(3, 4), torch.randn(4, 5)
        torch.testing.assert_close(compiled(x, y), (x @ y).softmax(-1))
        assert len(fxstack.compile_log(compiled).choices) == (k >= WARM_UP + TIMED - 1)
