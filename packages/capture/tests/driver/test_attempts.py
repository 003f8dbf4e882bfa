"""The attempts to trace a frame: one row for each outcome, and what observers see of attempts and passes."""

import contextlib
import dataclasses
import doctest
import re
import warnings
from pathlib import Path
from typing import get_args

import pytest
import torch

import fxstack_capture as fx
from fxstack_capture.driver.attempts import outcomes, steps
from fxstack_capture.driver.backend import eager
from fxstack_capture.passes import STAGES
from fxstack_interchange.passes import StoppedAfterPass, observed

X = torch.ones(3)


class Log(list):
    """Keeps the passes that have run, with the texts of the states after them, and stops after one."""

    def __init__(self, stop=""):
        self.stop = stop

    def on_pass(self, done):
        self.append((done.name, done.text(), done.why))
        if done.name == self.stop:
            raise StoppedAfterPass(f"stopped after pass {done.name}")


def log_of(fn, *args, backend=eager, **options):
    with observed(log := Log()):
        fx.optimize(backend, options=fx.CaptureOptions(**options))(fn)(*(args or (X,)))
    return log


def attempts(fn, *args, frame=0):
    """Print the attempts to trace one of the frames of a call."""
    passes = [done for done in log_of(fn, *args) if done[0].startswith("trace")]
    starts = [place for place, (name, *_) in enumerate(passes) if name == "trace"]
    for name, text, _ in passes[starts[frame] : [*starts, None][frame + 1]]:
        graph = re.findall(r"^    (\w+): [^=\n]* = (.*)$", text, re.MULTILINE)
        print(f"{name}:", ", ".join(map(" = ".join, graph)) if "def graph" in text else text.splitlines()[0])


def after(name, fn, *args, **options):
    """Print the state after a pass, without guards on torch itself."""
    text = next(text for found, text, _ in log_of(fn, *args, **options) if found == name)
    print(
        "\n".join(line for line in text.splitlines() if not re.search("attributes|global state|marks", line))
    )


NAMES = {
    "attempts": attempts,
    "after": after,
    "contextlib": contextlib,
    "torch": torch,
    "__name__": "program",
}


@pytest.mark.parametrize("step", STAGES["capture"], ids=lambda step: step.name)
def test_the_example_of_a_pass_reaches_it(step):
    test = doctest.DocTestParser().get_doctest(step.run.__doc__, dict(NAMES), step.name, None, 0)
    text = "".join(example.source + example.want for example in test.examples)
    assert step.name in text and 3 <= text.count("\n") <= 8
    failed = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=failed.append)
    assert not failed, "".join(failed)


def test_each_outcome_has_one_row_or_ends_the_attempts():
    made = {kind for kind in vars(outcomes).values() if getattr(kind, "__module__", "") == outcomes.__name__}
    found = {outcomes.Written, *filter(dataclasses.is_dataclass, made)}
    ends = {*get_args(outcomes.Traced), outcomes.Raises}
    assert found - {outcomes.Breaks} == {*steps.STEPS} | ends
    assert not ends & {*steps.STEPS}


def test_the_table_in_the_documentation():
    text = (Path(__file__).parents[4] / "docs/architecture/frames.md").read_text()
    rows = [f"| `{kind.__name__}` | `{step.name}` | {step.sentence} |" for kind, step in steps.STEPS.items()]
    assert "\n".join(rows) in text


class Frames(list):
    """Keeps the records of frames."""

    def on_frame(self, record):
        self.append((record.verdict, record.why))

    def on_trace(self, seconds):
        """Do nothing."""

    on_break = on_trace


def whole(x):
    return x.sin() + 1


def breaking(x):
    y = x.sin()
    fx.graph_break()
    return y + 1


def in_the_backend(_graph, _inputs):
    raise StoppedAfterPass("stopped after pass lower")


@pytest.mark.parametrize(
    ("program", "last", "options"),
    [
        *((breaking, name, {}) for name in ("trace", "trace_to_break", "check_guards", "assemble")),
        (whole, "assemble", {"fullgraph": True}),
        (whole, "lower", {"fullgraph": True, "backend": in_the_backend}),
        (breaking, "lower", {"backend": in_the_backend}),
    ],
)
def test_a_frame_stopped_after_a_pass_runs_in_plain_python(program, last, options):
    fx.reset()
    compiled = fx.optimize(observer=(frames := Frames()), **options)(program)
    with observed(log := Log(last)), warnings.catch_warnings():
        warnings.simplefilter("ignore", fx.Uncompiled)
        for _ in range(3):
            assert torch.equal(compiled(X), X.sin() + 1)
    assert frames == [("plain", f"stopped after pass {last}")]
    assert [name for name, *_ in log].count("trace") == 1
