"""``TORCHDYNAMO_REPRO_AFTER`` and ``torch._dynamo.config.repro_after``: check graphs at their first call, and minify."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from fxstack.minify.cases import Case, make_case
from fxstack.minify.checking import Backend, Check, CheckedGraph, Compiled, make_savable
from fxstack.minify.compare import Failure, difference, failure_of
from fxstack.settings import ReproRequest
from fxstack_capture import WrongResultError
from fxstack_interchange.format.errors import SaveError

# Limits: level 1 is level 2; the first call of each graph is checked.

SCRIPT = Path("fxstack_minified.py")


@dataclass
class RequestedCheck(Check):
    """Checks the first call of each graph as ``request`` says. The program goes on with the compiled graph."""

    request: ReproRequest = field(kw_only=True)
    aot_eager: Callable[[], Backend] = field(kw_only=True)

    def compile(self, backend: Backend, graph: GraphModule, fakes: Sequence[Any], place: str) -> Compiled:
        """Compile a graph with a check. After ``aot`` the reference is the graph of ``aot_eager``."""
        checked = super().compile(backend, graph, fakes, place)
        assert isinstance(checked, CheckedGraph)
        if self.request.after == "aot":
            checked.reference = self.aot_eager()(graph, fakes)
        return checked

    def compare(self, checked: CheckedGraph, inputs: tuple[Any, ...]) -> None:
        """Check the first call, and minify if it is wrong.

        Raises:
            WrongResultError: the results differ from eager's, with level 4.
        """
        checked.calls += 1
        if checked.calls > 1:
            return
        case = make_case(checked.graph, inputs, checked.place)
        if self.request.level == 3:
            path = Path(f"fxstack_graph_{os.getpid()}_{checked.number}.case")
            if _saved(case, path):
                _say(f"the graph captured from {case.place} is in {path}; run: fxstack minify {path}")
            return
        if isinstance(checked.compiled, Exception):
            failure: Failure | None = failure_of(checked.compiled)
        else:
            failure = difference(checked.compiled, case, checked.reference)
        if failure is None or (failure.kind != "raises" and self.request.level < 4):
            return
        _minify(case, failure)
        if failure.kind != "raises":
            raise WrongResultError(f"the code compiled from {case.place} is wrong: {failure}")

    def run(self, checked: CheckedGraph, inputs: tuple[Any, ...]) -> Any:
        """Call the compiled graph. Raise the error of its compilation if there was one."""
        if isinstance(checked.compiled, Exception):
            raise checked.compiled
        return checked.compiled(*inputs)

    def mark(self, graph: int, call: int) -> None:
        """Do nothing: level 3 is for graphs at which the process dies."""


def _minify(case: Case, failure: Failure) -> None:
    """Run ``fxstack minify`` on a case in a process of its own."""
    _say(f"{failure}, in the graph captured from {case.place}; it is minified")
    with tempfile.TemporaryDirectory(prefix="fxstack-") as folder:
        path = Path(folder) / "graph.case"
        if _saved(case, path):
            command = [sys.executable, "-m", "fxstack", "minify", "--out", str(SCRIPT), str(path)]
            dropped = ("TORCHDYNAMO_REPRO", "FXSTACK=")
            environment = {k: v for k, v in os.environ.items() if not f"{k}=".startswith(dropped)}
            subprocess.run(command, check=False, stdout=sys.stderr.fileno(), env=environment)  # noqa: S603


def _saved(case: Case, path: Path) -> bool:
    """Write the case to ``path``. Return False, after a message, if the format cannot hold it."""
    try:
        make_savable(case).save(path)
    except SaveError as error:
        _say(f"the graph captured from {case.place} cannot be written: {error}")
        return False
    return True


def _say(text: str) -> None:
    sys.stderr.write(f"fxstack: {text}\n")
