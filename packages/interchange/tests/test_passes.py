"""Passes run in order, are shown to observers, and stop where an observer says so."""

from dataclasses import dataclass, field

import pytest

from fxstack_interchange.passes import NothingToDo, Pass, PassDone, StoppedAfterPass, observed, run_passes


def double(numbers: list[int]) -> list[int]:
    """Multiply each number
    by two.

    >>> double([1, 2])
    [2, 4]
    """
    return [2 * number for number in numbers]


def drop_negative(numbers: list[int]) -> list[int] | NothingToDo:
    """Drop negative numbers."""
    return NothingToDo("no number is negative") if min(numbers) >= 0 else [n for n in numbers if n >= 0]


PASSES = (Pass("double", double), Pass("drop_negative", drop_negative))


@dataclass
class Log:
    stop: str = ""
    lines: list[str] = field(default_factory=list)

    def on_pass(self, done: PassDone) -> None:
        self.lines.append(f"{done.stage}:{done.name} {done.text()} {done.why}")
        if done.name == self.stop:
            raise StoppedAfterPass


def run(numbers: list[int]) -> list[int]:
    return run_passes("stage", PASSES, numbers, str)


def test_passes_run_in_order():
    assert run([1, -1]) == [2]


def test_a_sentence_is_the_first_of_the_docstring():
    assert PASSES[0].sentence == "Multiply each number by two."


def test_an_observer_sees_the_state_after_each_pass_and_why_a_pass_did_nothing():
    log = Log()
    with observed(log):
        assert run([1, 2]) == [2, 4]
    assert log.lines == ["stage:double [2, 4] None", "stage:drop_negative [2, 4] no number is negative"]


def test_an_observer_sees_nothing_outside_of_its_context():
    log = Log()
    with observed(log):
        pass
    assert run([1]) == [2] and log.lines == []


def test_an_observer_may_stop_the_stage():
    log = Log(stop="double")
    with observed(log), pytest.raises(StoppedAfterPass):
        run([-1])
    assert log.lines == ["stage:double [-2] None"]


class WithInput(Log):
    def on_stage(self, stage, text):
        self.lines.append(f"{stage} {text()}")


def test_an_observer_may_see_the_state_in_front_of_the_first_pass():
    log = WithInput()
    with observed(log):
        run([1])
    assert log.lines[0] == "stage [1]" and len(log.lines) == 3
