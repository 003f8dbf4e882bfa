"""Run the script of a case, or any script, in a child, and see how it fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fxstack.minify.cases import Case, copies
from fxstack.minify.compare import Failure, failure_of, is_rounding, observe, scale, tolerance
from fxstack.minify.forks import Ended, Forks
from fxstack.minify.script import script_text
from fxstack.minify.stages import Setup
from fxstack.torch_compat import pytree


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
