"""Checks of tensors that only raise stay in the graph; one that fails raises what plain Python raises, with all before it."""

import random

import pytest
import torch
from checking import (
    BODIES,
    ERRORS,
    PROGRAMS,
    caught_before_the_operation_that_would_fail,
    program,
    raising,
    with_effects,
)
from running import Graphs, observe
from same import difference

import fxstack_capture as fx

GOOD, BAD = torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("nan")])


def beside_plain(make, *inputs, graphs=1, fullgraph=True):
    """Plain and optimised, one function for all calls, see the same; ``graphs`` are compiled."""
    backend = Graphs()
    plain, optimised = make(), fx.optimize(backend, fullgraph=fullgraph)(make())
    for given in inputs:
        args = given if isinstance(given, tuple) else (given,)
        expected, seen = observe(plain, args), observe(optimised, args)
        assert difference(seen, expected) is None, (seen, expected)
    assert graphs in (None, len(backend)), [graph.code for graph in backend]


@pytest.mark.parametrize("make", PROGRAMS)
def test_checks_that_pass_and_fail(make):
    beside_plain(make, GOOD, -GOOD, BAD, GOOD)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("body", BODIES)
def test_checks_whose_bool_is_made_elsewhere(body, fullgraph):
    beside_plain(program(body), GOOD, -GOOD, BAD, GOOD, fullgraph=fullgraph)


@pytest.mark.parametrize(
    "body",
    [
        "if good(x > 0):\n        return x",
        "try:\n        if not good(x > 0):\n            raise ValueError\n    except ValueError:\n        x = -x",
        "y = [good(x > 0), good(x < 9)]\n    if not y[0]:\n        raise ValueError",
    ],
)
def test_bools_that_decide_what_runs_end_the_graph(body):
    beside_plain(program(body), GOOD, -GOOD, BAD, GOOD, graphs=None, fullgraph=False)


def test_effects_before_a_check_that_fails_and_none_after_it():
    beside_plain(with_effects, GOOD, BAD, GOOD, BAD, graphs=2)


def test_errors_of_the_graph_that_the_check_comes_before():
    program = caught_before_the_operation_that_would_fail
    beside_plain(program, torch.tensor([1, 2]), torch.tensor([1, 7]), torch.tensor([4, 0]))


@pytest.mark.filterwarnings("error")
def test_a_raise_that_its_branch_handles_is_no_check():
    def make():
        def f(x):
            if x.sum() > 0:
                try:
                    raise ValueError("here")
                except ValueError:
                    pass
                y = x * 2
            return y + 1

        return f

    beside_plain(make, GOOD, GOOD * 2, -GOOD, GOOD, graphs=None, fullgraph=False)


def test_before_a_graph_break_and_after_it():
    def make():
        def f(x):
            if x[0] < 0:
                raise ValueError("first")
            if x.sum() > 5:
                return x - 1
            if x.max() > 3:
                raise ValueError("second")
            return x + 1

        return f

    inputs = (GOOD, GOOD * 9, -GOOD, torch.tensor([0.0, 3.5]), GOOD)
    beside_plain(make, *inputs, graphs=3, fullgraph=False)


@pytest.mark.parametrize("change", [lambda x: x.add_(1), lambda x: x[:1].zero_()])
def test_what_cannot_be_taken_back_ends_the_graph(change):
    def make():
        def f(x):
            change(x)
            if x.isnan().any():
                raise ValueError(torch.is_grad_enabled())
            return x * 2

        return f

    beside_plain(make, GOOD, BAD, GOOD, graphs=2, fullgraph=False)


@pytest.mark.parametrize(("gradient", "graphs"), [(lambda: None, 1), (lambda: torch.zeros(2), 2)])
def test_checks_before_a_backward_end_the_graph_at_most_once(gradient, graphs):
    def make():
        weight, start = torch.ones(2, requires_grad=True), gradient()

        def f(x):
            weight.grad = start
            if x.isnan().any():
                raise ValueError("nan")
            if (x < 0).any():
                raise ValueError("negative")
            (weight * x).sum().backward()
            return weight.grad + 1

        return f

    beside_plain(make, GOOD, BAD, GOOD, -GOOD, graphs=graphs, fullgraph=False)


def test_a_branch_of_which_both_sides_go_on_ends_the_graph():
    def make():
        return lambda x: x + 1 if x.isnan().any() else x - 1

    beside_plain(make, GOOD, BAD, graphs=3, fullgraph=False)


def test_inside_of_an_operator_with_graphs_nothing_is_assumed():
    def branch(x):
        if x.isnan().any():
            raise ValueError("inside")
        return x + 1

    def f(x):
        return torch.cond(x.sum() > 0, branch, lambda t: t - 1, (x,))

    with pytest.raises(fx.Unsupported, match="data-dependent"):
        fx.optimize(fullgraph=True)(f)(GOOD)


def test_without_assumptions_the_graph_ends():
    with fx.patch_options(assume_checks=False), pytest.raises(fx.Unsupported, match="data-dependent"):
        fx.optimize(fullgraph=True)(raising())(GOOD)


def test_python_s_random_numbers_are_not_drawn_twice():
    def make():
        def f(x):
            noise = random.random()
            if x.isnan().any():
                raise ValueError(random.random())
            return x * noise

        return f

    random.seed(0)
    plain = [observe(make(), (given,)) for given in (GOOD, BAD, GOOD)]
    random.seed(0)
    optimised = fx.optimize()(make())
    for expected, given in zip(plain, (GOOD, BAD, GOOD)):
        assert difference(observe(optimised, (given,)), expected) is None


OWN, TORCHS = random.Random(3), torch.Generator()  # noqa: S311


def noisy(x):
    r = random.gauss(0, 1) + random.random() + OWN.uniform(1, 2)
    noise = torch.rand(2, generator=TORCHS) + torch.rand(2)
    order = [1, 2, 3]
    random.shuffle(order)
    if x.isnan().any():
        raise ValueError(f"{r} {order} {random.random()} {OWN.random()} {noise.tolist()}")
    return x * r * order[0] + noise + random.choice([1, 2, 3])


def test_random_numbers_are_drawn_again_where_a_check_fails():
    def run(fn):
        random.seed(1)
        OWN.seed(2)
        TORCHS.manual_seed(3)
        torch.manual_seed(4)
        found = [outcome(fn, x) for x in (GOOD, BAD, GOOD, BAD, -GOOD)]
        ends = random.getstate(), OWN.getstate(), TORCHS.get_state(), torch.get_rng_state()
        return found, ends

    def outcome(fn, x):
        try:
            return fn(x)
        except ValueError as error:
            return str(error)

    backend = Graphs()
    expected, seen = run(noisy), run(fx.optimize(backend, fullgraph=True)(noisy))
    assert difference(seen, expected) is None
    assert len(backend) == 1


@pytest.mark.parametrize("make", ERRORS)
def test_errors_of_the_graph_are_raised_where_plain_python_raises_them(make):
    good, bad = torch.tensor([1, 2]), torch.tensor([1, 9])
    beside_plain(make, good, bad, good, bad, graphs=None)


def broken(_graph_module, _inputs):
    def run(*_):
        raise ArithmeticError("a defect of the backend")

    return run


def test_errors_of_the_graph_that_plain_python_does_not_raise_are_not_hidden():
    log = []

    def f(x):
        log.append(1)
        return x + 1

    with pytest.raises(ArithmeticError, match="a defect of the backend"):
        fx.optimize(broken)(f)(GOOD)


def test_errors_of_ours_are_no_errors_of_the_program():
    def off_by_one(graph_module, _inputs):
        return lambda *args: [value + 1 for value in graph_module(*args)]

    def f(x):
        try:
            return x + 1
        except RuntimeError:
            return x

    with pytest.raises(fx.WrongResultError):
        fx.optimize(off_by_one, options=fx.CaptureOptions(verify_correctness=True))(f)(GOOD)


def test_code_of_the_programs_own_in_a_graph_runs_once():
    calls = []

    @fx.allow_in_graph
    def refusing(x):
        calls.append(type(x))
        if type(x) is torch.Tensor:
            raise ValueError("refused")
        return x

    with pytest.raises(ValueError, match="refused"):
        fx.optimize()(lambda x: refusing(x) + 1)(GOOD)
    assert calls.count(torch.Tensor) == 1


class Swallowing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return True


def bound_on_one_side(x):
    with Swallowing():
        if x.sum() > 1:
            pass
        else:
            late = x + 1
        raise ValueError
    return late


@pytest.mark.filterwarnings("error:internal error")
def test_an_error_behind_an_assumption_is_the_branchs():
    compiled = fx.optimize()(bound_on_one_side)
    for _ in range(2):
        assert torch.equal(compiled(torch.zeros(2)), torch.ones(2))
        with pytest.raises(UnboundLocalError):
            compiled(torch.ones(2))
