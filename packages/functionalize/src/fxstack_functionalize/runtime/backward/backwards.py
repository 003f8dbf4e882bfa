"""The compiled backwards of one joint graph: one for each set of results that have no gradient.

Most programs always differentiate the same results, so one backward is compiled, at the first use.
``undefined_gradients`` explains why different sets need different backwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, RLock
from typing import Any

from fxstack_functionalize.runtime.calling import Call, Compiled, as_boxed, check_results, without_autocast
from fxstack_functionalize.runtime.plan import TrainingPlan
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.tensor_metadata import tangent_reader
from fxstack_functionalize.undefined_gradients import without_tangents
from fxstack_interchange import InputKind, StageGraph
from fxstack_interchange.locations.located_errors import located, stack_traces

logger = logging.getLogger(__name__)
BACKWARD = "backward graph"


@dataclass(frozen=True, slots=True)
class Variant:
    """The backward for calls in which the flat outputs ``missing`` have no gradient.

    ``arguments``: the leading arguments (before tangents) of the whole backward that it takes. None: it is
    the whole backward, which gets zeros.
    """

    missing: tuple[int, ...]
    arguments: tuple[int, ...] | None


class LazyBackward:
    """Compiles a backward at its first use, once for all threads. Calls ``made`` after the first run."""

    def __init__(
        self,
        compile_backward: Callable[[], Compiled],
        expected: int,
        on_compiled: Callable[[Compiled], None] = lambda _compiled: None,
    ) -> None:
        self._compile = compile_backward
        self._expected = expected
        self._made = on_compiled
        self._lock = Lock()
        self._call: Call | None = None

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._call is None:
            with self._lock:
                if self._call is None:
                    compiled = self._compile()
                    call = without_autocast(as_boxed(compiled, BACKWARD))
                    results = check_results(call(args), self._expected, BACKWARD)
                    self._call = call
                    self._made(compiled)
                    return results
        return self._call(args)


class Backwards:
    """Finds the backward for the present gradients; makes a new one from ``graph()`` if needed."""

    def __init__(
        self,
        shell: Shell,
        plan: TrainingPlan,
        graph: Callable[[], StageGraph],
        compile_graph: Callable[[StageGraph], Compiled],
        on_compiled: Callable[[Variant, Compiled], None] = lambda _variant, _compiled: None,
    ) -> None:
        self._shell = shell
        self._plan = plan
        self._graph = graph
        self._compile = compile_graph
        self._made = on_compiled
        self._lock = RLock()
        self._found: dict[tuple[bool, ...], _ReadyBackward] = {}
        self._positions = shell.info.differentiable

    def __call__(
        self, missing: tuple[bool, ...], arguments: list[Any], grads: Sequence[Any], sizes: object
    ) -> list[Any]:
        """Return the gradients of all inputs. ``missing``: for each differentiable output, if it has none.

        Empties ``arguments`` (saved tensors and symbols).
        """
        ready = self._found.get(missing) or self._find(missing)
        try:
            return ready(arguments, grads, sizes)
        except Exception as error:
            # The graph of a program from disk is traced again here. The program's error matters more than its line.
            with suppress(Exception):
                traces = stack_traces(self._graph().graph_module.graph)
                error.__traceback__ = located(error.__traceback__, traces) or error.__traceback__
            raise

    def arguments(self, missing: tuple[bool, ...]) -> tuple[int, ...] | None:
        """Return the leading arguments of the whole backward that are needed; None for all."""
        return (self._found.get(missing) or self._find(missing)).arguments

    def traceable(self, missing: tuple[bool, ...]) -> _ReadyBackward:
        """Return a function like this object, for calls with ``missing``, that runs the graph and no kernels."""
        positions = [p for p, is_missing in zip(self._positions, missing, strict=True) if is_missing]
        variant, stage = self._variant(positions)
        graph = stage.graph_module
        assert graph.code  # lazy modules make their code when it is read
        return _ReadyBackward(self._shell, self._plan, variant, lambda args: graph(*args))

    @property
    def none(self) -> tuple[None, ...]:
        """The gradients of all inputs if no output has a gradient."""
        return (None,) * len(self._shell.info.inputs)

    def add(self, variant: Variant, load: Callable[[], Compiled]) -> None:
        """Add a variant that is compiled, or that ``load`` will compile."""
        call = LazyBackward(load, self._plan.backward_results, lambda made: self._made(variant, made))
        key = tuple(position in variant.missing for position in self._positions)
        self._found[key] = _ReadyBackward(self._shell, self._plan, variant, call)

    def stage(self, variant: Variant) -> Callable[[], StageGraph]:
        """Return a function that returns the graph of a variant."""
        return lambda: self._variant(variant.missing)[1]

    def _find(self, missing: tuple[bool, ...]) -> _ReadyBackward:
        """Return the backward for the outputs ``missing``. It is compiled at its first use."""
        with self._lock:
            if missing not in self._found:
                positions = [p for p, is_missing in zip(self._positions, missing, strict=True) if is_missing]
                variant, stage = self._variant(positions)
                self.add(variant, lambda: self._compile_late(stage))
            return self._found[missing]

    def _compile_late(self, stage: StageGraph) -> Compiled:
        """Compile when guards on sizes can no longer be added. A backward that needs guards runs in eager."""
        shapes = self._shell.captured.fake_mode.shape_env
        guard_count = 0 if shapes is None else len(shapes.guards)
        compiled = self._compile(stage)
        if shapes is not None and len(shapes.guards) != guard_count:
            logger.info("a backward without all gradients needs guards on sizes, and runs in eager")
            in_eager: Compiled = stage.graph_module.forward
            return in_eager
        return compiled

    def _variant(self, missing: Collection[int]) -> tuple[Variant, StageGraph]:
        """Return the variant for the flat outputs ``missing``, and its graph: the whole backward if no part can be cut."""
        whole = self._graph()
        everything = Variant(tuple(missing), None)
        if not missing:
            return everything, whole
        tangents = whole.signature.inputs_of(InputKind.TANGENT)
        names = {
            spec.name
            for spec, tangent in zip(tangents, self._plan.tangents, strict=True)
            if tangent.position in missing
        }
        partial_stage = without_tangents(whole, names)
        if partial_stage is None:
            return everything, whole
        input_names = {spec.name for spec in partial_stage.signature.inputs}
        leading = [spec for spec in whole.signature.inputs if spec not in tangents]
        positions = tuple(position for position, spec in enumerate(leading) if spec.name in input_names)
        return Variant(tuple(missing), positions), partial_stage


class _ReadyBackward:
    """One variant, with all facts about its inputs and outputs that are equal in all calls."""

    def __init__(self, shell: Shell, plan: TrainingPlan, variant: Variant, call: Call) -> None:
        self._call = call
        whole = variant.arguments is None
        self.arguments = variant.arguments
        tangents = [t for t in plan.tangents if whole or t.position not in variant.missing]
        self._tangents = [tangent_reader(tangent.position, tangent.example) for tangent in tangents]
        self._targets = plan.targets
        self._count = len(shell.info.inputs)
        missing = set(variant.missing)
        self._without = [
            index for index, sources in shell.info.sources if sources and missing.issuperset(sources)
        ]
        """Inputs that only get a gradient through missing gradients."""

    def __call__(self, arguments: list[Any], grads: Sequence[Any], sizes: object) -> list[Any]:
        inputs = arguments
        if self.arguments is not None:
            inputs = [arguments[position] for position in self.arguments]
            arguments.clear()
        for tangent in self._tangents:
            inputs.append(tangent(grads, sizes))
        gradients: list[Any] = [None] * self._count
        for position, value in zip(self._targets, self._call(inputs), strict=True):
            gradients[position] = value
        for position in self._without:
            gradients[position] = None
        return gradients
