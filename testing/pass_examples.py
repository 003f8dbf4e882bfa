"""Examples in the docstrings of passes: what a pass changes, as a test runs it and compares.

An example calls a function of the test's ``namespace`` that compiles something and prints ``changed(...)``. It shows
the changed lines: ``-`` before the pass, ``+`` after it. Types and the namespace of ATen's operators are left out.
"""

import doctest
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from difflib import SequenceMatcher
from io import StringIO

from fxstack_interchange.passes import Pass, PassDone, StoppedAfterPass, observed

FEWEST, MOST = 3, 8
"""The number of lines of an example, with the call."""


class PassLog:
    """Keeps stage, name, text and reason of each pass. Ends the stage after the pass ``stop``, in a stage or in any."""

    def __init__(self, stop: str | tuple[str, str] | None = None) -> None:
        self.seen: list[tuple[str, str, str, str | None]] = []
        self.stop = stop

    def on_pass(self, done: PassDone) -> None:
        self.seen.append((done.stage, done.name, done.text(), done.why))
        if self.stop in (done.name, (done.stage, done.name)):
            raise StoppedAfterPass


class Texts:
    """Observes one stage: the text of its state, before each pass and at the end."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.names: list[str] = []
        self.texts: list[str] = []
        self.reasons: dict[str, str | None] = {}

    def on_stage(self, stage: str, text: Callable[[], str]) -> None:
        if stage == self.stage:
            self.names, self.texts = [], [text()]

    def on_pass(self, done: PassDone) -> None:
        if done.stage == self.stage:
            self.names.append(done.name)
            self.texts.append(done.text())
            self.reasons[done.name] = done.why

    def around(self, name: str) -> tuple[str, str]:
        """Return the texts before and after pass ``name``."""
        place = self.names.index(name)
        return self.texts[place], self.texts[place + 1]


def texts_of(stage: str, run: Callable[[], object]) -> Texts:
    """Return the texts of ``stage`` while ``run`` compiles something."""
    texts = Texts(stage)
    with observed(texts):
        run()
    return texts


def changed(stage: str, name: str, run: Callable[[], object]) -> str:
    """Return the lines that pass ``name`` changes while ``run`` compiles something."""
    before, after = (_short(text) for text in _with_symbols(*texts_of(stage, run).around(name)))
    lines: list[str] = []
    for _, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if before[a:b] != after[c:d]:
            lines += [f"- {line}" for line in before[a:b]] + [f"+ {line}" for line in after[c:d]]
    return "\n".join(lines)


def _with_symbols(*texts: str) -> list[str]:
    """Number symbolic sizes in order of their first use: torch's names differ between versions."""
    names = list(dict.fromkeys(re.findall(r"\bs\d+\b", "".join(texts))))
    return [re.sub(r"\bs\d+\b", lambda found: f"s{names.index(found[0])}", text) for text in texts]


def _short(text: str) -> list[str]:
    lines = (re.sub(r"^(\w+): [^=(]*\S = ", r"\1 = ", line.strip()) for line in text.splitlines())
    return [line for line in lines if not _FRAME.fullmatch(line)]


_FRAME = re.compile(r"(def \w+\(|\):|return \(|\))?")
"""Lines around inputs and outputs."""


def failures(passes: Iterable[Pass], namespace: Mapping[str, object]) -> list[str]:
    """Run the example of each pass. Return what is wrong: no sentence, no example, too long, another result."""
    return [f"{step.name}: {reason}" for step in passes for reason in _wrong(step, namespace)]


def _wrong(step: Pass, namespace: Mapping[str, object]) -> Iterable[str]:
    source = inspect.cleandoc(step.run.__doc__ or "")
    if step.sentence.find(".") != len(step.sentence) - 1:
        yield "the docstring does not begin with one sentence"
    test = doctest.DocTestParser().get_doctest(source, dict(namespace), step.name, step.name, 0)
    lines = sum((one.source + one.want).count("\n") for one in test.examples)
    if not FEWEST <= lines <= MOST:
        yield f"the example has {lines} lines, not {FEWEST} to {MOST}"
    runner, out = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS), StringIO()
    with redirect_stdout(StringIO()):
        runner.run(test, out=out.write)
    if runner.failures:
        yield out.getvalue()
