"""Compare every compiled graph of a program with eager, on copies of the inputs of its calls."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from fxstack.minify.cases import Case, is_foreign, make_case
from fxstack.minify.compare import Failure, difference, failure_of
from fxstack.minify.surgery import calls, node_values, rebuild
from fxstack_interchange.format.errors import SaveError
from fxstack_interchange.modules import make_graph_module

Compiled = Callable[..., Any]
Backend = Callable[[GraphModule, Sequence[Any]], Compiled]


class Found(BaseException):
    """A graph fails. The case is in a file, and the program need not go on."""


@dataclass
class Check:
    """Compares graphs. ``folder`` gets the case that fails, the number of the graph that is in work, and the counts so far.

    The program gets the results of the graph in eager, so that a later difference is no sum of roundings.
    ``only`` is the graph whose case is to be written at its first call, because the process dies there.
    """

    folder: Path
    only: tuple[int, int] | None = None
    graphs: int = 0
    """The number of compiled graphs so far."""
    calls: int = 0
    """The number of compared calls so far."""
    failure: Failure | None = None
    _place: str = ""

    def compile(self, backend: Backend, graph: GraphModule, fakes: Sequence[Any], place: str) -> Compiled:
        """Compile a graph by ``backend`` and return a callable that compares each call."""
        number = self.graphs
        self.graphs += 1
        original = make_graph_module(graph, copy.deepcopy(graph.graph))  # a backend may change its graph
        self.mark(number, -1)
        if self.only is not None and self.only[0] == number:
            compiled: Compiled | Exception = original.forward
        else:
            try:
                compiled = backend(graph, fakes)
            except Exception as error:
                compiled = error
        return CheckedGraph(self, original, compiled, number, place, original.forward)

    def mark(self, graph: int, call: int) -> None:
        (self.folder / "current").write_text(f"{graph} {call} {self.graphs} {self.calls}")

    def compare(self, checked: CheckedGraph, inputs: tuple[Any, ...]) -> None:
        """Compare one call.

        Raises:
            Found: the call fails.
        """
        self.mark(checked.number, checked.calls)
        case = make_case(checked.graph, inputs, checked.place)
        if self.only is not None:
            if self.only in ((checked.number, checked.calls), (checked.number, -1)):
                self._stop_program(case, None)
        elif isinstance(checked.compiled, Exception):
            self._stop_program(case, failure_of(checked.compiled))
        else:
            failure = difference(checked.compiled, case)
            if failure is not None:
                self._stop_program(case, failure)
        self.calls += 1
        checked.calls += 1

    def run(self, checked: CheckedGraph, inputs: tuple[Any, ...]) -> Any:
        """Return the results of a call for the program."""
        return checked.graph(*inputs)

    def _stop_program(self, case: Case, failure: Failure | None) -> None:
        """Write the case (or the reason why it cannot be written), and raise ``Found``."""
        self.failure = failure
        try:
            make_savable(case).save(self.folder / "case")
        except SaveError as error:
            (self.folder / "why").write_text(str(error))
        raise Found


@dataclass
class CheckedGraph:
    """A graph that a program calls. ``compiled`` is the compiled graph or the exception of its compiler."""

    check: Check
    graph: GraphModule
    compiled: Compiled | Exception
    number: int
    """The graph's number in order of compilation."""
    place: str
    reference: Compiled
    """The callable whose results the compiled graph must have: the graph in eager."""
    calls: int = 0
    """The number of calls so far."""

    def __call__(self, *inputs: object) -> Any:
        self.check.compare(self, inputs)
        return self.check.run(self, inputs)


def make_savable(case: Case) -> Case:
    """Return the case with inputs in place of operations that only the program defines."""
    foreign = [node for node in calls(case) if is_foreign(node)]
    if not foreign:
        return case
    values = node_values(case)
    return rebuild(case, values={node: values[node.name] for node in foreign if node.name in values})
