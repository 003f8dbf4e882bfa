"""Trace a captured graph once, into an inference graph or a joint forward-and-backward graph.

The choice is made after the forward has run: the graph is joint if gradients are requested and an output, or
a new value of an input, requires one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import FunctionalizeError, TraceFailedError
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.passes import FORWARD, INFERENCE, JOINT, Tracing, text
from fxstack_functionalize.regions.outline import INVOKE
from fxstack_functionalize.torch_compat import TreeSpec
from fxstack_functionalize.tracer.aten_tracer import AtenTracer
from fxstack_functionalize.tracer.engine import Engine, ModeEngine
from fxstack_functionalize.tracer.inputs import Captured, RestartTraceError, TraceRequest
from fxstack_functionalize.tracing.region_calls import check_sums
from fxstack_functionalize.tracing.session import Session
from fxstack_interchange import Stage, StageGraph
from fxstack_interchange.operators.kernels import NAMESPACE
from fxstack_interchange.passes import StoppedAfterPass, run_passes


@dataclass(frozen=True, slots=True)
class Shell:
    """All data from which a wrapper is generated, except compiled graphs.

    ``out_spec``: pytree structure of user outputs.
    """

    captured: Captured
    info: GraphInfo
    out_spec: TreeSpec


@dataclass(frozen=True, slots=True)
class Traced:
    """A traced graph with the records from which its runtime wrapper is made."""

    stage_graph: StageGraph
    shell: Shell
    backward_nodes: frozenset[str]
    """Names of the nodes that were recorded while autograd ran the backward."""

    @property
    def captured(self) -> Captured:
        return self.shell.captured

    @property
    def info(self) -> GraphInfo:
        return self.shell.info

    @property
    def trains(self) -> bool:
        return self.stage_graph.signature.stage is Stage.JOINT


def trace(
    captured: Captured, request: TraceRequest, decompositions: Mapping[Any, Callable[..., Any]] | None = None
) -> Traced:
    """Trace ``captured``, first with the fast functionalisation, then with the general one if needed."""
    if not isinstance(decompositions, Mapping | None):
        raise TypeError(
            f"decompositions map operators to functions, and are no {type(decompositions).__name__}.\n"
            "  fix: torch._decomp.get_decompositions(operators) makes such a table"
        )
    table = dict(decompositions or {})
    try:
        return _trace_inputs(captured, request, table)
    except (FunctionalizeError, StoppedAfterPass):
        raise
    except Exception as error:
        raise TraceFailedError(error) from error


def _trace_inputs(
    captured: Captured, request: TraceRequest, table: Mapping[Any, Callable[..., Any]]
) -> Traced:
    """Trace ``captured``. Restart with inputs or views represented differently if the trace requires it."""
    try:
        if not (captured.needs_modes or any(map(_needs_modes, _targets(captured)))):
            return _trace_with(Engine(flat_views=captured.flat_views), captured, request, table)
        if captured.fake_mode.shape_env is None and any(
            isinstance(target, torch_compat.HigherOrderOperator) and target is not INVOKE
            for target in _targets(captured)
        ):
            captured.fake_mode.shape_env = ShapeEnv()  # loops need symbols, even for static sizes
        return _trace_with(ModeEngine(flat_views=captured.flat_views), captured, request, table)
    except RestartTraceError as restart:
        changed = restart.change(captured)
    return _trace_inputs(changed, request, table)


def _targets(captured: Captured) -> Iterator[Any]:
    """Yield the targets of all nodes, also of the nodes of nested graphs."""
    for module in captured.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            yield from (node.target for node in module.graph.nodes)


def _needs_modes(target: object) -> bool:
    """Whether a node needs ``FunctionalTensorMode``: custom or higher-order operators, wrapper subclasses."""
    if target is INVOKE:  # the operators of its body are asked on their own
        return False
    if isinstance(target, torch_compat.HigherOrderOperator) or getattr(target, "needs_modes", False):
        return True
    is_operator = isinstance(target, (torch_compat.OpOverload, torch_compat.OpOverloadPacket))
    return is_operator and not str(target).startswith(("aten", "prim", NAMESPACE))


def _trace_with(
    engine: Engine, captured: Captured, request: TraceRequest, table: Mapping[Any, Callable[..., Any]]
) -> Traced:
    """Run the passes from the captured graph to an inference or a joint graph."""
    tracer = AtenTracer(request.whole_attention, equal_draws=captured.equal_draws)
    session = Session(captured, engine, tracer, table)
    state = Tracing(session, request, torch.is_grad_enabled(), torch_compat.is_any_autocast_enabled())
    with session.recording():
        state = run_passes("functionalize", FORWARD, state, text)
        stage, passes = ("joint", JOINT) if state.stage is Stage.JOINT else ("inference", INFERENCE)
        state = run_passes(stage, passes, state, text)
    assert state.stage_graph is not None
    assert state.out_spec is not None
    check_sums(request.regions, state.stage_graph)
    backward_nodes = frozenset(node.name for node in tracer.backward_nodes)
    return Traced(state.stage_graph, Shell(captured, state.info, state.out_spec), backward_nodes)
