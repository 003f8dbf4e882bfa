"""A sample of the random programs over the whole stack; ``sweeps/whole_programs.py`` runs as many as one likes."""

from types import SimpleNamespace

import pytest
import torch
from random_programs import running
from random_programs.noise import farther, unexplained
from random_programs.observing import Comparison, Observed, snapshot
from random_programs.running import check_program
from random_programs.shrinking import script, shrink
from random_programs.writer import count, program

SAMPLE = range(12)


@pytest.mark.parametrize("seed", SAMPLE)
def test_program_of_seed(seed):
    assert check_program(program(seed)).differences == []


def test_a_seed_is_always_the_same_program():
    assert program(3).source() == program(3).source()


def wrong(monkeypatch, change):
    """Has programs compiled by a compiler that changes what they return."""

    def compile_(fn, **options):
        return lambda *args: change(fn(*args))

    log = SimpleNamespace(graph_count=1, break_count=0)
    stub = SimpleNamespace(compile=compile_, compile_log=lambda fn: log, reset=lambda: None)
    stub.pipeline = SimpleNamespace(compile_graph=None)
    monkeypatch.setattr(running, "fxstack", stub)


def changed(result, change):
    if isinstance(result, torch.Tensor):
        return change(result)
    if isinstance(result, (list, tuple)) and type(result) in (list, tuple):
        return type(result)(changed(r, change) for r in result)
    return {k: changed(v, change) for k, v in result.items()} if type(result) is dict else result


def differences(monkeypatch, change, seeds=range(5)):
    wrong(monkeypatch, lambda result: changed(result, change))
    return [seed for seed in seeds if check_program(program(seed), (1,)).differences]


def test_nothing_differs_where_nothing_is_changed(monkeypatch):
    assert differences(monkeypatch, lambda t: t) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.detach() + 1 if t.is_floating_point() else t,
        lambda t: t.detach().clone(),
        lambda t: t.to(torch.float64) if t.dtype is torch.float32 else t.to(torch.int32),
        lambda t: t[None],
        lambda t: t.add_(1) if not t.requires_grad and t.dtype is not torch.bool else t,
    ],
    ids=["values", "aliases", "dtypes", "shapes", "mutation"],
)
def test_a_wrong_result_is_found(monkeypatch, change):
    assert len(differences(monkeypatch, change)) >= 2


def test_a_difference_is_cut_down_to_a_script(monkeypatch):
    change = lambda t: t.detach() + 1 if t.is_floating_point() else t
    seed = differences(monkeypatch, change)[-1]
    written = program(seed)
    before = count(written)
    outcome = shrink(written, check_program(written, (1,)), 10.0, (1,))
    assert outcome.differences
    assert count(written) < before
    compile(script(written, 1), "script", "exec")


def test_noise_explains_rounding_alone():
    t = torch.tensor([1.0, 2.0])
    wanted, trial, got = (Observed([("r", snapshot(t + by))]) for by in (0, 1e-3, 2e-3))
    found = Comparison(1e-5)(got, wanted)
    assert len(found) == 1
    assert unexplained(found, wanted, [trial], 1e-5) == []
    assert len(unexplained(found, wanted, [wanted], 1e-5)) == 1


def seen(*values):
    return Observed([("0 result", [snapshot(torch.tensor(v)) for v in values])])


def test_a_gradient_that_cancels_is_as_near_to_double_precision_as_eagers():
    eager, exact = seen([1.0, 2.0]), seen([1.0 + 3e-4, 2.0])
    for ours, left in (([1.0 + 5e-4, 2.0], 0), ([1.0 + 9e-3, 2.0], 1), ([float("nan"), 2.0], 1)):
        found = Comparison(1e-4)(seen(ours), eager)
        assert len(farther(found, exact)) == left
        assert len(farther(found, seen([1.0]))) == 1


def test_programs_in_double_precision_compute_the_same():
    for seed in range(8):
        check = running.Check(
            program(seed).source(), program(seed).inputs.calls, program(seed).inputs.noise, {}
        )
        exact, eager = check.exact(), check.eager()
        assert [name for name, _ in exact.records] == [name for name, _ in eager.records]
