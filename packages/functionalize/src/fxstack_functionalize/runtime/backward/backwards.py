"""The compiled backwards of one joint graph: one for each set of results that have no gradient.

Most programs always differentiate the same results, so one backward is compiled, at the first use. Zeros
cannot replace a missing gradient: an infinite derivative times zero is NaN, and nodes that depend on missing
gradients alone would cost time. Autograd skips a node that no gradient reaches; ``without_tangents`` removes
such nodes from a backward graph.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, RLock
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from fxstack_functionalize.regions.inline import inline_regions
from fxstack_functionalize.runtime.calling import Call, Compiled, as_boxed, check_results, without_autocast
from fxstack_functionalize.runtime.plan import TrainingPlan
from fxstack_functionalize.torch_compat import FakeTensor
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.tensor_metadata import dimension_order, tangent_reader
from fxstack_functionalize.tracing.finalize import remove_dead_code, with_graph
from fxstack_interchange import InputKind, StageGraph
from fxstack_interchange.locations.located_errors import locate_traceback, stack_traces

# Limits: with symbolic sizes, the backward runs in eager if its compiler asks for guards on sizes, which the
# forward can no longer have.

aten = torch.ops.aten


class _NoZerosError(Exception):
    """A node takes a missing and a present gradient, and zeros for the missing one cannot be written."""


def without_tangents(backward: StageGraph, missing: Collection[str]) -> StageGraph | None:
    """Return ``backward`` (``Stage.BACKWARD``) without the tangents ``missing``.

    The new graph has no inputs for these tangents and for saved tensors that only they need (it keeps
    symbols), and returns None for gradients that depend on missing tangents alone. Return None if a node
    needs zeros for a missing gradient and their layout cannot be written, for example because its size is
    symbolic.
    """
    try:
        return _TangentRemoval(backward, missing).graph()
    except _NoZerosError:
        return None


class _TangentRemoval:
    """Copies a backward graph without the nodes that depend on missing tangents alone."""

    def __init__(self, stage: StageGraph, missing: Collection[str]) -> None:
        self._stage = stage
        self._missing = missing
        self._graph = Graph()
        self._copies: dict[Node, Node] = {}
        self._dependent: set[Node] = set()
        """Nodes that depend on a gradient."""
        self._dropped: set[Node] = set()
        """Nodes of ``_dependent`` that depend on missing gradients alone."""
        self._zeros: dict[Node, Node] = {}

    def graph(self) -> StageGraph:
        """Return the backward without the missing tangents, and without the computations that only they need."""
        tangents = {spec.name for spec in self._stage.signature.inputs_of(InputKind.TANGENT)}
        for node in self._stage.graph_module.graph.nodes:
            if node.op == "placeholder":
                self._copy_placeholder(node, is_tangent=node.name in tangents)
            elif node.op != "output":
                self._copy_call(node)
        values: Any = self._stage.graph_module.graph.output_node().args[0]
        self._graph.output(tuple(self._copies.get(value) for value in values))
        rerun = {copy for node, copy in self._copies.items() if node not in self._dependent}
        remove_dead_code(self._graph, rerun, root=self._stage.graph_module)
        return self._stage_without_unused_inputs()

    def _copy_placeholder(self, node: Node, *, is_tangent: bool) -> None:
        """Copy an input of the backward.

        A missing tangent gets no copy; the nodes that depend on it find it in ``_dropped``.
        """
        if is_tangent:
            self._dependent.add(node)
        if node.name in self._missing:
            self._dropped.add(node)
        else:
            self._copies[node] = self._graph.node_copy(node)

    def _copy_call(self, node: Node) -> None:
        """Copy a node, leave it out if all its gradients are missing, or replace a sum by its present summand."""
        gradients = [used for used in node.all_input_nodes if used in self._dependent]
        missing = [used for used in gradients if used in self._dropped]
        if gradients:
            self._dependent.add(node)
        summand = _present_summand(node, missing)
        # ``missing + other``: a sum with a term that depends on no gradient (zeros, for example) becomes that
        # term.
        if missing and len(missing) == len(gradients) and (summand is None or summand in self._dependent):
            self._dropped.add(node)
            return
        if summand is not None:
            self._copies[node] = self._copies[summand]
            return
        self._copies[node] = self._graph.node_copy(node, self._argument)

    def _argument(self, used: Node) -> Node:
        """Return the copy of an argument, or zeros for a missing gradient that a node takes beside others."""
        if used not in self._dropped:
            return self._copies[used]
        if used not in self._zeros:
            self._zeros[used] = self._make_zeros(used.meta.get("val"))
        return self._zeros[used]

    def _make_zeros(self, value: object) -> Node:
        """Return zeros with the layout of ``value``, which may be permuted and expanded."""
        if not isinstance(value, FakeTensor) or value.layout is not torch.strided:
            raise _NoZerosError
        if value._has_symbolic_sizes_strides:
            raise _NoZerosError
        shape, strides = list(value.shape), value.stride()
        dense = [size if stride else 1 for size, stride in zip(shape, strides, strict=True)]
        order, inverse = dimension_order(value)
        keywords = {"dtype": value.dtype, "device": value.device}
        zeros = self._add(value, aten.full.default, [dense[dim] for dim in order], 0, **keywords)
        if order != sorted(order):
            zeros = self._add(value, aten.permute.default, zeros, inverse)
        if dense != shape:
            zeros = self._add(value, aten.expand.default, zeros, shape)
        if _strides_that_matter(zeros.meta["val"]) != _strides_that_matter(value):
            raise _NoZerosError
        return zeros

    def _add(self, like: FakeTensor, target: Any, *args: Any, **keywords: Any) -> Node:
        """Add a call to the new graph, with a fake value from the fake mode of ``like``."""
        node = self._graph.call_function(target, args, keywords)
        with like.fake_mode:
            node.meta["val"] = target(*map_arg(args, lambda used: used.meta["val"]), **keywords)
        return node

    def _stage_without_unused_inputs(self) -> StageGraph:
        """Return the new graph as a stage, without saved tensors that nothing reads any more."""
        stage = self._stage
        saved = {spec.name for spec in stage.signature.inputs_of(InputKind.SAVED)}
        for node in self._graph.find_nodes(op="placeholder"):
            is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
            if is_tensor and node.name in saved and not node.users:
                self._graph.erase_node(node)
        names = {node.name for node in self._graph.find_nodes(op="placeholder")}
        inputs = [spec for spec in stage.signature.inputs if spec.name in names]
        return with_graph(stage, self._graph, inputs, self._copies)


def _present_summand(node: Node, missing: Collection[Node]) -> Node | None:
    """Return the summand of ``node`` that is not missing, if ``node`` adds two tensors of the same layout."""
    if node.target is not aten.add.Tensor or node.kwargs:
        return None
    present = [used for used in node.args if used not in missing]
    if len(present) != 1 or not isinstance(present[0], Node):
        return None
    summand = present[0]
    value, sum_value = summand.meta.get("val"), node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(sum_value, torch.Tensor):
        return None
    return summand if _dtype_and_layout(value) == _dtype_and_layout(sum_value) else None


def _dtype_and_layout(value: torch.Tensor) -> tuple[object, ...]:
    """Return dtype and layout. Sizes are text, because comparing symbols would add a guard."""
    return value.dtype, *map(str, (*value.shape, *value.stride()))


def _strides_that_matter(value: torch.Tensor) -> list[int]:
    return [stride for size, stride in zip(value.shape, value.stride(), strict=True) if size > 1]


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
    """Finds the backward for the present gradients, and makes one from ``graph()`` when a new set is missing."""

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
                error.__traceback__ = locate_traceback(error.__traceback__, traces) or error.__traceback__
            raise

    def arguments(self, missing: tuple[bool, ...]) -> tuple[int, ...] | None:
        """Return the leading arguments of the whole backward that are needed; None for all."""
        return (self._found.get(missing) or self._find(missing)).arguments

    def traceable(self, missing: tuple[bool, ...]) -> _ReadyBackward:
        """Return the backward for ``missing`` as a function that runs the graph node by node, for a capture to trace."""
        positions = [p for p, is_missing in zip(self._positions, missing, strict=True) if is_missing]
        variant, stage = self._variant(positions)
        graph = inline_regions(stage.graph_module)
        assert graph.code  # lazy modules make their code when it is read
        return _ReadyBackward(self._shell, self._plan, variant, lambda args: graph(*args))

    @property
    def none(self) -> tuple[None, ...]:
        """The gradients of all inputs, all None, for a call in which no output has a gradient."""
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
