"""Callables whose compiled calls take longer than plain ones are left in plain Python, and one warning says so."""

import sys
import warnings
from types import SimpleNamespace

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture.driver.errors import TracingWarning
from fxstack_capture.driver.profitability import Trial, is_slower
from fxstack_capture.driver.reports.records import Tally

X = torch.arange(6.0)
CALLS = 30
"""Enough to compile, to settle and to time 16 calls."""


def breaking(x):
    y = x.sin()
    fx.graph_break()
    return y + 1


def whole(x):
    return x.sin() + 1


def nothing(x):
    fx.graph_break()
    return x


class Backend:
    """Runs graphs as they are; counts the calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, graph_module, _):
        def run(*inputs):
            self.calls += 1
            return graph_module.forward(*inputs)

        return run


@pytest.fixture(autouse=True)
def nanoseconds(monkeypatch):
    """Times of calls in place of measured ones: compiled calls take twice as long as plain ones."""
    times = {"plain": 10_000, "compiled": 20_000}
    end = Trial.end

    def end_of_call(trial, optimized, plain, measured, result):
        if not isinstance(optimized, SimpleNamespace):  # tests of the judgement give times of their own
            measured = times["plain" if plain else "compiled"]
        end(trial, optimized, plain, measured, result)

    monkeypatch.setattr(Trial, "end", end_of_call)
    return times


def compiled_by(backend, fn, **options):
    chosen = fx.CaptureOptions(**{"leave_unprofitable": True, **options})
    return fx.optimize(backend, options=chosen)(fn)


def run(fn, *args, calls=CALLS):
    """The warnings of some calls, whose results are those of the plain function."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(calls):
            torch.testing.assert_close(fn(*args), fn.__wrapped__(*args), rtol=0, atol=0)
    return [w for w in caught if issubclass(w.category, TracingWarning)]


def test_slow_pieces_are_left_alone_and_said_once():
    backend = Backend()
    compiled = compiled_by(backend, breaking)
    (warning,) = run(compiled, X)
    calls = backend.calls
    assert run(compiled, X) == [] and backend.calls == calls
    assert warning.filename == __file__
    text = str(warning.message)
    assert text.startswith(
        f"breaking ({__file__}:{breaking.__code__.co_firstlineno}) runs in plain Python from now on"
    )
    assert "(medians of 8 calls each; graphs: 2, graph breaks: 1)" in text
    assert "explain() lists them" in text and "leave_unprofitable=False" in text


@pytest.mark.parametrize(
    ("fn", "options"),
    [
        (whole, {"leave_unprofitable": False}),
        (breaking, {"leave_unprofitable": False}),
        (whole, {"fullgraph": True}),
    ],
)
def test_what_is_never_tried(fn, options):
    backend = Backend()
    assert run(compiled_by(backend, fn, **options), X) == []
    assert backend.calls >= CALLS


def changing(x, number):
    return x * number + number / 7


def test_a_whole_graph_that_is_slower_is_left_alone():
    assert len(run(compiled_by(Backend(), whole), X)) == 1


def test_a_whole_graph_of_long_calls_is_not_compared(nanoseconds):
    nanoseconds["compiled"] = 2_000_000
    compiled = compiled_by(Backend(), whole)
    assert run(compiled, X) == [] and compiled.trial is None


def test_changing_numbers_are_judged():
    compiled = compiled_by(Backend(), changing)
    assert sum(len(run(compiled, X, n + 0.5, calls=1)) for n in range(CALLS)) == 1


def test_calls_with_several_entries_are_judged():
    compiled = compiled_by(Backend(), changing)
    kinds = [X, X.double(), X.long(), X.reshape(2, 3), X.bfloat16()]
    assert sum(len(run(compiled, kinds[n % 5], 2, calls=1)) for n in range(2 * CALLS)) == 1


def sometimes_raising(x, number):
    if number % 2:
        raise ValueError(number)
    fx.graph_break()
    return x.sin()


def test_calls_of_which_every_second_raises_are_judged():
    compiled = compiled_by(Backend(), sometimes_raising)
    warned = []
    for number in range(2 * CALLS):
        if number % 2:
            with pytest.raises(ValueError, match=r"^\d+$"):
                compiled(X, number)
        else:
            warned += run(compiled, X, number, calls=1)
    assert len(warned) == 1 and compiled.plain_calls


def test_calls_whose_results_need_gradients_are_judged():
    assert len(run(compiled_by(Backend(), breaking), X.clone().requires_grad_())) == 1


@pytest.mark.parametrize("late", [False, True])
def test_a_backward_through_a_result_keeps_a_callable_compiled(late):
    backend = Backend()
    compiled, x = compiled_by(backend, breaking), X.clone().requires_grad_()
    results = []
    for _ in range(CALLS):
        results.append(compiled(x))
        if not late:
            results[-1].sum().backward()
    if late:
        assert compiled.plain_calls
        results[CALLS // 2].sum().backward()
    assert compiled.trial is None and not compiled.plain_calls
    calls = backend.calls
    compiled(x)
    assert backend.calls > calls


def test_a_returned_leaf_may_get_a_gradient():
    compiled, x = compiled_by(Backend(), nothing), X.clone().requires_grad_()
    assert run(compiled, x) == [] and compiled.trial is None


def test_deterministic_programs_are_not_judged():
    torch.use_deterministic_algorithms(True)
    try:
        assert run(compiled_by(Backend(), breaking), X) == []
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_pays_stays_compiled(nanoseconds):
    nanoseconds["plain"] = 30_000
    compiled = compiled_by(Backend(), breaking)
    assert run(compiled, X) == [] and compiled.trial is None


def test_it_is_tried_again_later():
    backend = Backend()
    compiled = compiled_by(backend, breaking)
    run(compiled, X)
    assert compiled.plain_calls > 900
    compiled.plain_calls = 0
    assert run(compiled, X) == []  # still slow; it has been said
    assert compiled.plain_calls > 1900


def test_a_reset_forgets_the_verdict():
    backend = Backend()
    compiled = compiled_by(backend, breaking)
    assert len(run(compiled, X)) == 1
    fx.reset()
    calls = backend.calls
    assert len(run(compiled, X)) == 1 and backend.calls > calls


def test_modules_are_named_by_their_class():
    class Net(torch.nn.Module):
        def forward(self, x):
            return breaking(x)

    net = Net()
    compiled = compiled_by(Backend(), net)
    with pytest.warns(TracingWarning, match=r"Net \(.*test_profitability.py:\d+\) runs in plain"):
        for _ in range(CALLS):
            compiled(X)


def caller(x):
    fx.graph_break()
    return x.sin() if sys._getframe(1).f_code.co_name == "ask" else x


def test_a_timed_call_sees_its_caller():
    compiled = compiled_by(Backend(), caller)

    def ask():
        return compiled(X)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(CALLS):
            assert torch.equal(ask(), X.sin())


def test_errors_pass_through_timed_calls():
    def failing(x):
        fx.graph_break()
        raise ValueError(x.sum().item())

    compiled = compiled_by(Backend(), failing)
    for _ in range(CALLS):
        with pytest.raises(ValueError, match=r"^15\.0$"):
            compiled(X)


def test_a_warning_that_is_an_error_is_raised_by_the_call():
    compiled = compiled_by(Backend(), breaking)
    with warnings.catch_warnings(), pytest.raises(TracingWarning, match="plain Python from now on"):
        warnings.simplefilter("error")
        for _ in range(CALLS):
            compiled(X)


# --- the judgement, on given times --------------------------------------------------------------


@pytest.mark.parametrize(
    ("compiled", "plain", "expected"),
    [
        ([20] * 8, [10] * 8, True),
        ([10] * 8, [20] * 8, False),
        ([104] * 8, [100] * 8, False),
        ([20] * 7 + [900], [10] * 7 + [900], True),  # the garbage collector
        ([10, 100] * 4, [9, 90] * 4, None),  # two sizes in turn
        ([20] * 8, [10] * 6 + [900] * 2, None),
        ([20] * 16, [10] * 14 + [900] * 2, True),
    ],
)
def test_is_slower(compiled, plain, expected):
    assert is_slower(compiled, plain) is expected


def driven(times):
    """A trial whose calls take ``times(plain)``; (the callable, how often it ran plainly)."""
    tally = Tally(breaks=1, graphs=2)
    trial = Trial(tally, None, breaking)
    optimized = SimpleNamespace(trial=trial, plain_calls=0)
    plain = 0
    for _ in range(100):
        manner = trial.begin(optimized)
        if manner:
            plain += manner == 2
            trial.end(optimized, manner == 2, times(manner == 2), None)
        if optimized.trial is None or optimized.plain_calls:
            break
    return optimized, plain


def test_doubt_is_followed_by_more_calls_and_ends_compiled():
    ticks = iter(range(1000))
    optimized, plain = driven(lambda plain: (10, 1000)[next(ticks) // 2 % 2] * (1 if plain else 1.2))
    assert optimized.trial is None and plain == 32


def test_new_kinds_of_arguments_start_it_again():
    tally = Tally(breaks=1, graphs=2)
    trial = Trial(tally, None, breaking)
    optimized = SimpleNamespace(trial=trial, plain_calls=0)
    while not trial.begin(optimized):
        pass
    tally.traced += 1
    trial.end(optimized, False, 10, None)
    assert trial.compiled == [] and trial.begin(optimized) == 0


def test_objects_of_unknown_classes_may_hold_gradients():
    optimized = SimpleNamespace(trial=1, plain_calls=0)
    trial = Trial(Tally(traced=-1), None, breaking)
    trial.end(optimized, False, 10, {"a": [1, (X, "s")]})
    assert optimized.trial == 1 and trial.compiled == [10]
    trial.end(optimized, False, 10, [object()])
    assert optimized.trial is None


def test_looking_at_results_runs_no_code_of_the_program():
    class Loud(dict):
        def values(self):
            raise AssertionError("called")

    endless = [X]
    endless.append(endless)
    trial = Trial(Tally(traced=-1), None, breaking)
    optimized = SimpleNamespace(trial=1, plain_calls=0)
    trial.end(optimized, False, 10, Loud(a=X))
    assert optimized.trial == 1 and trial.compiled == [10]
    trial.end(optimized, False, 10, endless)
    assert optimized.trial is None
