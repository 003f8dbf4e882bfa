"""Run the script of a case, or any script, in a forked process, and see how it fails. A fork needs no import of torch.

The parent computes in one thread, because a child cannot use a team of OpenMP threads that its parent has started.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fxstack.minify.cases import Case, copies
from fxstack.minify.compare import Failure, failure_of, is_rounding, observe, scale, tolerance
from fxstack.minify.script import script_text
from fxstack.minify.stages import Setup
from fxstack.torch_compat import pytree

LIMIT = 300.0
"""Seconds after which a trial is killed."""
Send = Callable[[object], None]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a child: the last value that it sent or returned, the signal that ended it, and its exit status."""

    value: Any
    signal: str
    """The name of the signal, for example ``SIGSEGV``; "" if no signal ended the child."""
    hung: bool
    """Whether the child was killed because its time was over."""
    status: int


class Forks:
    """Runs functions in children, each with the number of threads that torch had in the beginning."""

    def __init__(self) -> None:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)

    def run(self, fn: Callable[[Send], object], *, seconds: float = LIMIT, output: str = os.devnull) -> Ended:
        """Call ``fn(send)`` in a child. ``send`` keeps a value for the case that the child dies.

        Args:
            fn: What it returns is kept, too. Values are those that ``torch.save`` takes.
            seconds: The child is killed after this time.
            output: The file to which the child prints; "" leaves the output of this process.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        with tempfile.TemporaryDirectory(prefix="fxstack-") as folder:
            message = Path(folder) / "message"
            child = os.fork()
            if not child:
                self._run(fn, message, output)
            status, hung = _wait(child, time.monotonic() + seconds)
            value = torch.load(message, weights_only=False) if message.exists() else None
        died = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) and not hung else ""
        return Ended(value, died, hung, os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0)

    def _run(self, fn: Callable[[Send], object], message: Path, output: str) -> None:
        """Run ``fn`` in the child process. Write its result to the file ``message``, and end the child."""

        def send(value: object) -> None:
            torch.save(value, message.with_suffix(".new"))
            message.with_suffix(".new").replace(message)

        status = 1
        try:
            if output:
                sink = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.dup2(sink, 1)
                os.dup2(sink, 2)
            torch.set_num_threads(self._threads)
            send(fn(send))
            status = 0
        except BaseException:  # the parent's handlers must not see it
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def _wait(child: int, end: float) -> tuple[int, bool]:
    """Return the status with which a child ends, and whether it had to be killed at the time ``end``."""
    pause = 0.001
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status, False
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1], True
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def end_text(code: object) -> str:
    """Return in words how a process has ended; "" if this is no failure.

    ``code``: of ``subprocess``, or of ``sys.exit``.
    """
    if isinstance(code, int) and code < 0:
        return f"ends by {signal.Signals(-code).name}"
    return f"ends with exit code {code if isinstance(code, int) else 1}" if code else ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The script of a case and how it fails."""

    failure: Failure | None
    text: str = ""


@dataclass
class Trials:
    """Runs cases in children of this process. ``count`` is the number of children so far."""

    forks: Forks = field(default_factory=Forks)
    count: int = 0

    def attempt(self, case: Case, setup: Setup, inputs: list[str] | None = None, about: str = "") -> Attempt:
        """Compile ``case`` as ``setup`` says. Without expressions for the inputs, the inputs of the case are used."""
        self.count += 1

        def run(send: Any) -> Any:
            """Run a case in a child process, in eager first and then as a script. Return the failure and the script."""
            expected = observe(case.graph.forward, case)
            limit = tolerance(case, expected)
            bounds = limit, limit * scale([value for _, value in expected])
            text = script_text(case, setup, inputs, tolerance=bounds, about=about)
            send((None, text))  # from here on, eager has run: if the child dies, compiled code is at fault
            names: dict[str, Any] = {"__name__": "__main__", "given": lambda: copies(case.inputs)}
            failure = execute(text, names)
            if failure is not None and failure.what == "values" and inputs is None and "actual" in names:
                actual = list(
                    zip((name for name, _ in expected), pytree.tree_leaves(names["actual"]), strict=True)
                )
                failure = None if is_rounding(case, actual, expected) else failure
            return failure, text

        return attempt_of(self.forks.run(run))


def execute(text: str, names: dict[str, Any]) -> Failure | None:
    """Run a script in this process and return how it fails."""
    try:
        exec(compile(text, "<fxstack minify>", "exec"), names)  # noqa: S102 - our own script
    except SystemExit:
        return None
    except Exception as error:
        return failure_of(error)
    return None


def attempt_of(ended: Ended) -> Attempt:
    """Return how a trial ended: None if eager itself has failed."""
    if ended.value is None:
        return Attempt(None)
    failure, text = ended.value
    if ended.signal:
        return Attempt(Failure("dies", ended.signal, f"the process ends by {ended.signal}"), text)
    if ended.hung:
        return Attempt(Failure("hangs", "time", "the process does not end"), text)
    return Attempt(failure, text)
