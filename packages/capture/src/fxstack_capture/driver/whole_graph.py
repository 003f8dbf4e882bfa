"""``capture``: one whole graph of one call, without the frame hook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch.fx import GraphModule

from fxstack_capture import native
from fxstack_capture.breaks import graph_break
from fxstack_capture.driver.attempts.attempt import attempt, drafted, new_trace
from fxstack_capture.driver.attempts.outcomes import Breaks
from fxstack_capture.driver.contracts import CallContract, names_of_forward
from fxstack_capture.driver.errors import GuardError, unsupported
from fxstack_capture.driver.frame_of_call import frame_of_call, function_of
from fxstack_capture.driver.replacement import Written
from fxstack_capture.driver.reports.signature import signature_of
from fxstack_capture.emit.frame import Emitted
from fxstack_capture.emit.resume import Resumptions
from fxstack_capture.guards.explain import GuardFailure, first_failure
from fxstack_capture.guards.records import Guard
from fxstack_capture.guards.tree import compile_guards
from fxstack_capture.options import CaptureOptions, with_environment, with_fullgraph, with_settings
from fxstack_capture.shapes.contract import ShapeContract, ShapeContractError, demand_general
from fxstack_capture.shapes.history import FrameHistory
from fxstack_capture.sources import Source
from fxstack_capture.versions.instruction_sets import program_table
from fxstack_interchange import StageGraph, show


@dataclass(frozen=True, slots=True, repr=False)
class Captured:
    """One whole graph. A call reads the inputs from the arguments, runs the graph and replays side effects.

    Each call first checks the guards; this needs the C extension. If the guards reject the arguments, the
    result of ``capture`` raises ``GuardError``. The result of ``export`` raises ``ShapeContractError``.
    """

    stage_graph: StageGraph
    """The graph with its signature."""
    guards: tuple[Guard, ...]
    """The guards of the captured call, in order."""
    inputs: tuple[Source, ...]
    """The source of each input of the graph."""
    example_inputs: tuple[Any, ...]
    """The fake tensor or symbolic number of each input."""
    emitted: Emitted
    """The code around the graph, with its text."""
    function: FunctionType
    """The function that reads the inputs from the arguments, runs the graph and replays side effects."""
    leading: tuple[Any, ...]
    """The arguments that a call adds before the caller's arguments, for example the ``self`` of a method."""
    check: Callable[[tuple[Any, ...], dict[str, Any]], None]
    """A function of the arguments. It raises an error if the graph is not valid for them."""
    name: str
    """Qualified name of the captured function or module."""

    @property
    def graph_module(self) -> GraphModule:
        """The graph."""
        return self.stage_graph.graph_module

    @property
    def signature(self) -> Any:
        """The interchange signature of the graph: names and kinds of inputs and outputs, and symbols."""
        return self.stage_graph.signature

    @property
    def code(self) -> str:
        """The code around the graph, as Python-like text."""
        return self.emitted.text

    def __repr__(self) -> str:
        inputs = _described(self.inputs, self.example_inputs, {})[:1000]
        return (
            f"<Captured {self.name[:200]!r}: {len(self.graph_module.graph.nodes)} nodes, {len(self.guards)} guards,"
            f" {len(self.inputs)} inputs ({inputs}); .details() has all>"
        )

    def details(self) -> str:
        """Return the graph, the code around it and the guards as text."""
        guards = [f"{guard.source.name} {guard.check.demand()}" for guard in self.guards]
        return "\n".join([show(self.stage_graph), "", self.code, "", "guards:", *guards])

    def __call__(self, *args: object, **kwargs: object) -> Any:
        self.check(args, kwargs)
        return self.function(*self.leading, *args, **kwargs)


def capture_whole(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: CaptureOptions,
    contract: ShapeContract | None = None,
) -> Captured:
    """Trace one call, for ``capture`` or ``export``. Only ``export`` passes a contract.

    Raises ``Unsupported``, ``ShapeContractError``, or the exception of the program.
    """
    _, leading = function_of(fn)
    frame = frame_of_call(fn, args, kwargs)
    function = frame.function
    agreed = None if contract is None else CallContract(contract, fn)
    bound = None if agreed is None else agreed.bind(frame)
    demand_general(bound)
    trace = new_trace(
        with_fullgraph(with_settings(with_environment(options))), program_table(), FrameHistory(), bound
    )
    trace.for_entry, trace.exporting = False, contract is not None
    outcome = attempt(
        frame, trace, partial(drafted, trace, frame, function.__code__, Resumptions(native.skip))
    )
    match outcome:
        case Written(draft, guards, _, raised):
            if raised is not None:
                raise raised
        case Breaks(record):
            raise unsupported(record)
        case _:
            detail = f"the call returns or stores {outcome.text}"
            raise unsupported(graph_break("unsupported-object", detail).record)
    if draft is None or draft.captured is None:
        detail = "the call does no torch operation"
        raise unsupported(graph_break("tracing-error", detail).record)
    captured = draft.captured
    emitted = draft.complete(captured.graph_module)
    # The emitted code reads the globals and the cells of the original function.
    runner = FunctionType(
        emitted.code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    runner.__kwdefaults__ = function.__kwdefaults__
    stage = signature_of(captured)
    described = captured.inputs, captured.example_inputs
    name = getattr(fn, "__qualname__", type(fn).__qualname__)
    check = _Checking(name, fn, agreed, guards, _described(*described, names_of_forward(frame)))
    return Captured(stage, guards, *described, emitted, runner, leading, check, name)


class _Checking:
    """The function ``Captured.check``: checks all guards of a captured graph, and its contract if it has one.

    ``captured`` is the description of the inputs in the error.
    """

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        contract: CallContract | None,
        guards: tuple[Guard, ...],
        captured: str,
    ) -> None:
        self._name, self._fn, self._contract, self._guards = name, fn, contract, guards
        self._captured = captured
        self._tree: Any = None

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            frame = frame_of_call(self._fn, args, kwargs)
        except TypeError:
            if self._contract is not None:
                raise
            return  # the call itself raises this TypeError
        if self._contract is not None:
            self._contract.bind(frame)
        if not native.AVAILABLE:
            return
        # The tree is needed only if the captured graph is called.
        if self._tree is None:
            self._tree = compile_guards(self._guards, frame.function.__code__)
        failure = first_failure(self._tree, frame.function, frame.arguments)
        if failure is not None:
            renamed = {source.name: name.name for source, name in names_of_forward(frame).items()}
            raise self._error(replace(failure, renamed=renamed))

    def _error(self, failure: GuardFailure) -> Exception:
        """Return the error for a failed guard.

        It is a ``ShapeContractError`` for an exported graph, and a ``GuardError`` otherwise.
        """
        if self._contract is not None:
            return ShapeContractError(
                f"this call is not one that the graph was exported for: {failure.message}"
            )
        return GuardError(self._name, failure, self._captured)


def _described(sources: tuple[Source, ...], examples: tuple[Any, ...], names: dict[Source, Source]) -> str:
    """Return a description of the first inputs of a graph, for example ``x: float32[3, 4], y: int64[3]``.

    ``names`` maps some of the sources to sources with better names.
    """
    shown = [
        f"{names.get(source, source).name}: {_in_words(example)}"
        for source, example in zip(sources, examples, strict=True)
    ]
    rest = len(shown) - _MAX_INPUTS_SHOWN
    return ", ".join(shown[:_MAX_INPUTS_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _in_words(example: object) -> str:
    """Return a description of one input, for example ``float32[3, 4]``."""
    if not isinstance(example, torch.Tensor):
        return str(example)
    sizes = ", ".join(map(str, example.shape))
    return f"{str(example.dtype).removeprefix('torch.')}[{sizes}]"


_MAX_INPUTS_SHOWN = 8
"""The largest number of inputs in a description."""
