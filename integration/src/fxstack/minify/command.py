"""``fxstack minify``: run a program with checks, reduce the first graph that fails, write and verify its script."""

from __future__ import annotations

import os
import pickle
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fxstack.minify.cases import Case, load_case
from fxstack.minify.checking import Check, Found
from fxstack.minify.compare import Failure, failure_of
from fxstack.minify.programs import ProgramReduction
from fxstack.minify.reduction import Reduction
from fxstack.minify.script import LINES
from fxstack.minify.stages import CAPTURE, first_failing
from fxstack.minify.trials import Send, Trials, end_text
from fxstack.settings import CHECKS

NOTHING, WRITTEN, USAGE, UNWRITTEN, FAILS_ITSELF = range(5)
"""Exit statuses: nothing is wrong, a script was written, wrong usage, something is wrong without a script, and the
program fails in plain eager, too."""
_LAST_LINES = 5
"""Lines of a failed program's stderr that are shown."""


@dataclass
class Verdict:
    """The result of the search for a fault. ``status`` is the exit status of the command."""

    status: int
    summary: str
    """One sentence for people."""
    graphs: int = 0
    calls: int = 0
    failure: str = ""
    stage: str = ""
    function: str = ""
    operations: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    script: str = ""
    """The path of the written script; "" if none was written."""
    stderr: list[str] = field(default_factory=list)
    """The last lines of a program that fails in plain eager."""

    def __str__(self) -> str:
        """Return the verdict for people."""
        rows = {
            "how": self.failure.partition("\n")[0],
            "stage": self.stage,
            "function": self.function,
            "operations": ", ".join(self.operations),
            "line": "\n            ".join(self.lines),
            "stderr": "\n            ".join(self.stderr),
        }
        return "".join(
            [f"{self.summary}\n", *(f"{name:>10}: {text}\n" for name, text in rows.items() if text)]
        )

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


class Minifier:
    """Minifies a program into the script ``out``. ``tell`` gets lines of progress."""

    def __init__(self, out: Path, tell: Callable[[str], None]) -> None:
        self.out = out
        self.tell = tell
        self.trials = Trials()

    def program(self, run: Callable[[], None], argv: Sequence[str], *, module: bool) -> Verdict:
        """Run a program by ``run``, and minify the first call of a graph that fails.

        ``argv`` is the program's ``sys.argv``; ``module`` says that ``argv[0]`` is a module's name, not a file's.
        """
        with tempfile.TemporaryDirectory(prefix="fxstack-") as name:
            folder = Path(name)
            outcome = self._run_checked(run, folder, None)
            if outcome["end"] and (own_failure := fails_in_eager(argv, module=module)) is not None:
                return own_failure
            if outcome["signal"] and (folder / "current").exists():
                graph, call = map(int, (folder / "current").read_text().split()[:2])
                failure: Failure | None = Failure(
                    "dies", outcome["signal"], f"the process ends by {outcome['signal']}"
                )
                self.tell(f"{failure}; the program runs again up to this call")
                outcome |= self._run_checked(run, folder, (graph, call))
            else:
                failure = outcome["failure"]
            if failure is None:
                verdict = self.python_side(argv, outcome, module=module)
                verdict.graphs, verdict.calls = outcome["graphs"], outcome["calls"]
                return verdict
            if not (folder / "case").exists():
                file = folder / "why"
                why = file.read_text() if file.exists() else "the program does not repeat itself"
                return Verdict(UNWRITTEN, f"no script: {why}", failure=str(failure))
            try:
                case = load_case(folder / "case")
            except pickle.UnpicklingError as error:
                return Verdict(
                    UNWRITTEN,
                    f"no script: the inputs of the graph cannot be written: {error}",
                    failure=str(failure),
                )
            verdict = self.case(case, failure)
            if verdict.stage == "" and failure.kind == "dies":  # not in the graph that was in work
                verdict = self.python_side(argv, outcome, module=module)
        verdict.graphs, verdict.calls = outcome["graphs"], outcome["calls"]
        return verdict

    def _run_checked(
        self, program: Callable[[], None], folder: Path, only: tuple[int, int] | None
    ) -> dict[str, Any]:
        """Run the program in a child that compares graphs; return the counts, the failure and the way in which the child ends."""

        def run(_send: Send) -> dict[str, Any]:
            """Run the program in a child process with a check of each graph.

            Return what the check found, and how the program ended.
            """
            check = Check(folder, only)
            os.environ["FXSTACK_RAISE_FAILURES"] = "1"
            CHECKS.append(check)
            end = ""
            try:
                program()
            except Found:
                pass
            except SystemExit as error:
                end = end_text(error.code)
            except BaseException as error:
                end = f"ends with {failure_of(error)}"
            counts = {"graphs": check.graphs, "calls": check.calls}
            return {**counts, "failure": check.failure, "end": end, "signal": ""}

        ended = self.trials.forks.run(run, seconds=1e9, output="")
        if ended.value is not None:
            return dict(ended.value)
        # The program has ended the process itself: by a signal, os._exit or exec.
        current = folder / "current"
        text = current.read_text() if current.exists() else "0 -1 0 0"
        _, call, graphs, calls = map(int, text.split())
        end = f"ends by {ended.signal}" if ended.signal else end_text(ended.status)
        return {
            "graphs": graphs,
            "calls": calls + (call >= 0),
            "failure": None,
            "end": end,
            "signal": ended.signal,
        }

    def saved(self, path: Path) -> Verdict:
        """Minify a graph from a file."""
        case = load_case(path)
        failing = first_failing(lambda setup: self.trials.attempt(case, setup).failure)
        return (
            self.case(case, failing[1])
            if failing
            else Verdict(NOTHING, "nothing is wrong: the graph is eager's", 1, 1)
        )

    def python_side(self, argv: Sequence[str], outcome: dict[str, Any], *, module: bool) -> Verdict:
        """Minify a program of which all graphs agree."""
        agree = f"{outcome['calls']} calls of {outcome['graphs']} graphs are eager's"
        if outcome["end"]:
            agree += f" (the program {outcome['end']}, and ends without an error in plain eager)"
        status, begin = (
            (UNWRITTEN, "no script: the program fails only on fxstack, but")
            if outcome["end"]
            else (NOTHING, "nothing is wrong:")
        )
        if module:
            return Verdict(status, f"{begin} {agree}; results of a module are not compared")
        self.tell(f"{agree}; the program runs once in eager and once captured")
        reduction = ProgramReduction(argv, self.trials, self.tell)
        failure = reduction.find()
        if failure is None:
            return Verdict(status, f"{begin} {agree}, and so are the results of compiled callables")
        reduction.run()
        verdict = Verdict(UNWRITTEN, "", failure=str(failure), stage=CAPTURE.stage)
        verdict.function, verdict.lines = reduction.functions(), reduction.lines()
        self._write(reduction.text(f"On fxstack {argv[0]} {failure}"), failure, verdict)
        return verdict

    def case(self, case: Case, failure: Failure) -> Verdict:
        """Minify a graph that fails."""
        self.tell(f"{failure} in a graph of {case.size} operations, captured from {case.place}")
        failing = first_failing(
            lambda setup: self.trials.attempt(case, setup).failure, strides=failure.what == "stride"
        )
        if failing is None:
            text = "no script: the graph fails in the program, and does not fail alone"
            return Verdict(UNWRITTEN, text, failure=str(failure), function=case.place)
        setup, failure = failing
        self.tell(f"the first stage that fails: {setup.stage}")
        reduction = Reduction(case, setup, failure, self.trials, self.tell)
        reduction.run()
        inputs = reduction.inputs()
        verdict = Verdict(
            UNWRITTEN,
            "no script: the graph fails only with the inputs of the program, which are too large to write out",
            failure=str(failure),
            stage=setup.stage,
            function=case.place,
            operations=[node.name for node in reduction.case.graph.graph.nodes if node.op.startswith("call")],
        )
        verdict.lines = list(dict.fromkeys(case.lines[n] for n in verdict.operations if n in case.lines))
        if inputs is not None:
            attempt = self.trials.attempt(reduction.case, setup, inputs, docstring_of(verdict))
            self._write(attempt.text, failure, verdict)
        return verdict

    def _write(self, text: str, failure: Failure, verdict: Verdict) -> None:
        """Write the script if it is short enough and fails alone in the same way."""
        text = fit_lines(text)
        count = text.count("\n")
        if count > LINES:
            verdict.summary = f"the script has {count} lines instead of at most {LINES}: {self.out}"
        self.out.write_text(text, encoding="utf-8")
        if fails_alone(self.out, failure):
            verdict.script = str(self.out)
            if count <= LINES:
                verdict.status, verdict.summary = WRITTEN, f"{self.out} fails alone"
        else:
            verdict.summary = f"no script: {self.out} does not fail alone"


def fails_in_eager(argv: Sequence[str], *, module: bool) -> Verdict | None:
    """Run a program in plain eager; return a verdict if the program fails in eager too, else None."""
    words = ["-m"] * module + [*argv]
    environment = {name: value for name, value in os.environ.items() if name != "FXSTACK"}
    done = subprocess.run(  # noqa: S603 - the user's own program
        [sys.executable, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
        env={**environment, "TORCH_COMPILE_DISABLE": "1"},
    )
    if not done.returncode:
        return None
    command = f"TORCH_COMPILE_DISABLE=1 python {shlex.join(words)}"
    summary = (
        f"the program fails by itself: in plain eager it {end_text(done.returncode)}. "
        f"Mend it until this command ends without an error, then minify again: {command}"
    )
    return Verdict(FAILS_ITSELF, summary, stderr=done.stderr.rstrip().splitlines()[-_LAST_LINES:])


def docstring_of(verdict: Verdict) -> str:
    """Return the docstring of a script."""
    kind, _, rest = verdict.failure.partition("\n")[0].partition(": ")
    lines = [f"On fxstack this {kind}: {rest}", "", f"Stage: {verdict.stage}. From {verdict.function}."]
    return "\n".join([*lines, *verdict.lines[:2]]).replace("\\", "/").replace('"""', "'''") + "\n"


def fit_lines(text: str) -> str:
    """Return the script with two empty lines around functions, or without any, as the limit of lines allows."""
    spaced = re.sub(r"\n\n(def |expected)", r"\n\n\n\1", text)
    if spaced.count("\n") <= LINES:
        return spaced
    return text if text.count("\n") <= LINES else re.sub(r"\n\n+", "\n", text)


def fails_alone(script: Path, failure: Failure) -> bool:
    """Run a script in a fresh process, and return whether it fails in the same way."""
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=script.resolve().parent,
    )
    if failure.kind == "dies":
        return done.returncode < 0
    if failure.kind == "differs":
        return done.returncode == 1 and "AssertionError" in done.stderr
    return done.returncode == 1 and failure.what.partition(" ")[0] in done.stderr
