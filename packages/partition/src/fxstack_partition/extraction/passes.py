"""The passes that cut a joint graph: choose the saved values, then build the forward and the backward.

In the examples, ``example`` cuts the joint graph of a function and prints what the pass changed: the lines before
(``-``) and after (``+``) the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from torch.fx import Node

from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.format.show import show
from fxstack_interchange.passes import NothingToDo, Pass
from fxstack_partition.extraction.graphs import SavedValue, backward_graph, extend_reasons, forward_graph
from fxstack_partition.extraction.merge import merge_repeated_nodes
from fxstack_partition.joint.index_graph import IndexGraph
from fxstack_partition.joint.joint import JointFacts, analyze
from fxstack_partition.mincut.network import Network
from fxstack_partition.mincut.solve import minimum_cut
from fxstack_partition.options import PartitionOptions
from fxstack_partition.ordering.order import best_order, forward_order
from fxstack_partition.ordering.plan import Plan, make_plan


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan of both stages, with the order of their nodes. An order of None means the program's order.

    ``peak`` is the simulated peak of the backward in its order.
    """

    graph: IndexGraph
    plan: Plan
    backward: tuple[int, ...] | None = None
    forward: tuple[int, ...] | None = None
    peak: int = 0


@dataclass(frozen=True, slots=True)
class Cutting:
    """The state of a partitioner between two passes. Each pass fills further fields.

    ``network_of`` builds the flow network under the rules of the partitioner.
    """

    joint: StageGraph
    options: PartitionOptions | None
    network_of: Callable[[JointFacts, PartitionOptions], Network] | None = None
    facts: JointFacts | None = None
    network: Network | None = None
    saved: tuple[Node, ...] | None = None
    """The nodes that the cut saves; None before ``cut_network``."""
    reasons: tuple[tuple[str, str], ...] = ()
    """(node name, "rule: reason") for each node about which a rule decided."""
    planned: Planned | None = None
    """None before ``plan_backward``."""
    forward: StageGraph | None = None
    saved_values: tuple[SavedValue, ...] = ()
    result: Partition | None = None

    @property
    def joint_facts(self) -> JointFacts:
        assert self.facts is not None
        return self.facts

    @property
    def effective_options(self) -> PartitionOptions:
        return PartitionOptions() if self.options is None else self.options

    @property
    def plan(self) -> Planned:
        assert self.planned is not None
        return self.planned

    @property
    def partition(self) -> Partition:
        assert self.result is not None
        return self.result


C = TypeVar("C", bound=Cutting)


def classify_nodes(state: C) -> C:
    """Find the nodes that must run in the forward, the nodes that must run in the backward, and the other nodes.

    >>> example("classify_nodes", lambda x: x.sin().cos())
    + # forward: sin, cos
    + # backward: mul, mul_1
    + # forward or backward: sin_1, neg, cos_1
    """
    return replace(state, facts=analyze(state.joint))


def merge_repetitions(state: C) -> C | NothingToDo:
    """Merge nodes that compute the same value, where this saves memory.

    >>> example("merge_repetitions", lambda x: (x.exp() * x.exp()).sum())
    - # joint graph: 2 inputs, 14 operations, 2 outputs
    + # joint graph: 2 inputs, 13 operations, 2 outputs
    - mul_4 = aten.mul.Tensor(mul_2, alias_3)
    - add = aten.add.Tensor(mul_3, mul_4)
    + add = aten.add.Tensor(mul_3, mul_3)
    - # backward: expand, mul_1, mul_2, mul_3, mul_4, add
    + # backward: expand, mul_1, mul_2, mul_3, add
    """
    facts = merge_repeated_nodes(state.joint_facts, state.effective_options)
    if facts is None:
        return NothingToDo("no repeated node keeps memory alive")
    return replace(state, facts=facts)


def build_network(state: C) -> C:
    """Decide by rules which values must be saved or recomputed, and build the flow network of the other values.

    >>> example("build_network", lambda x: x.sin().cos())
    + # never recomputed (input): arg0_1
    + # saved or recomputed, whichever is cheaper (cheap): sin
    + # saved or recomputed, whichever is cheaper (backward-only): sin_1, neg, cos_1
    """
    assert state.network_of is not None
    network = state.network_of(state.joint_facts, state.effective_options)
    return replace(state, network=network, reasons=network.reasons)


def cut_network(state: C) -> C:
    """Choose the saved values by the minimum cut: the fewest bytes that are written and read.

    >>> example("cut_network", lambda x: x.cumsum(0).sin() * x.sin().cumsum(0))
    + # saved: arg0_1
    + # saved: cumsum
    + # saved: cumsum_1
    """
    assert state.network is not None
    return replace(state, saved=minimum_cut(state.network, state.effective_options.solver))


def plan_backward(state: C) -> C:
    """Plan the backward: the values that it gets from the forward, and the nodes that it recomputes.

    >>> example("plan_backward", lambda x: x.sin().cos())
    + # handed over: arg0_1
    + # recomputed: sin, sin_1, neg, cos_1
    + # order of the backward: the program's
    + # order of the forward: the program's
    """
    facts = state.joint_facts
    # The cached graph has the default options.
    graph = facts.index_graph if state.options is None else IndexGraph(facts, state.options)
    plan = make_plan(graph, (facts.position[node] for node in state.saved or ()))
    return replace(state, planned=Planned(graph, plan))


def order_backward(state: C) -> C:
    """Order the nodes of the backward for a low simulated memory peak.

    >>> example("order_backward", lambda x: x.sin().cos())
    - # order of the backward: the program's
    + # order of the backward: sin, sin_1, neg, mul, cos_1, mul_1
    """
    planned = state.plan
    order, peak = best_order(planned.graph, planned.plan)
    return replace(state, planned=replace(planned, backward=tuple(order), peak=peak))


def order_forward(state: C) -> C:
    """Order the nodes of the forward: as in the program, unless this order sets the peak of the step.

    >>> example("order_forward", lambda x: x.sin().cos())
    - # order of the forward: the program's
    + # order of the forward: sin, cos
    """
    planned = state.plan
    order, _ = forward_order(planned.graph, planned.plan, stop_at=planned.peak)
    return replace(state, planned=replace(planned, forward=tuple(order)))


def extract_forward(state: C) -> C:
    """Build the forward graph, which returns the saved values after its results.

    >>> example("extract_forward", lambda x: x.sin().cos())
    + # forward graph: 1 inputs, 2 operations, 2 outputs
    + arg0_1: f32[3],  # user_input
    + sin = aten.sin(arg0_1)
    + cos = aten.cos(sin)
    + cos,  # user_output
    + arg0_1,  # saved
    """
    planned = state.plan
    assert planned.forward is not None
    forward, saved_values = forward_graph(planned.graph, planned.plan, planned.forward)
    return replace(state, forward=forward, saved_values=saved_values)


def extract_backward(state: C) -> C:
    """Build the backward graph, whose inputs are the saved values and the tangents.

    >>> example("extract_backward", lambda x: x.sin().cos())
    + # backward graph: 2 inputs, 6 operations, 1 outputs
    + arg0_1: f32[3],  # saved arg0_1
    + tangent_0: f32[3],  # tangent cos
    + sin = aten.sin(arg0_1)
    + sin_1 = aten.sin(sin)
    ...
    + mul_1,  # gradient of arg0_1
    """
    planned, saved_values = state.plan, state.saved_values
    assert planned.backward is not None
    assert state.forward is not None
    graph, plan = planned.graph, planned.plan
    backward = backward_graph(
        state.joint_facts, [graph.nodes[index] for index in planned.backward], saved_values
    )
    result = Partition(
        forward=state.forward,
        backward=backward,
        saved=tuple(item.name for item in saved_values),
        # Both graphs hold the constants that they read, so a constant is not recomputed.
        recomputed=tuple(n.name for n in _recomputed(graph, plan) if n.op != "get_attr"),
        reasons=tuple(extend_reasons(state.reasons, saved_values)),
    )
    return replace(state, result=result)


def _recomputed(graph: IndexGraph, plan: Plan) -> Iterator[Node]:
    return (n for p, n in enumerate(graph.nodes) if plan.needed[p] and not graph.backward[p])


def text(state: Cutting) -> str:
    """Return the state as text for observers of passes: the joint graph, decisions as comments, finished graphs."""
    joint = state.joint if state.facts is None else state.facts.graph
    parts = [show(joint) + "".join(f"# {line}\n" for line in _decision_lines(state))]
    result = state.result
    forward = state.forward if result is None else result.forward
    parts += [
        show(graph) for graph in (forward, None if result is None else result.backward) if graph is not None
    ]
    return "\n".join(parts)


def _decision_lines(state: Cutting) -> Iterator[str]:
    """Yield the comments under the joint graph in a pass's text: what the passes so far have decided."""
    if state.facts is not None:
        yield from _side_lines(state.facts)
    if state.network is not None:
        rules: dict[str, list[Node]] = {}
        for node, decision in state.network.decisions.items():
            rules.setdefault(f"{decision.verdict.value} ({decision.rule.name})", []).append(node)
        yield from (f"{rule}: {_names(nodes)}" for rule, nodes in rules.items())
    if state.saved is not None:
        yield from (f"saved: {node}" for node in state.saved)
    if state.planned is not None:
        yield from _plan_lines(state.planned)


def _side_lines(facts: JointFacts) -> Iterator[str]:
    """Yield the names of the nodes that run in the forward, in the backward, and in either."""
    computed = [node for node in facts.nodes[:-1] if node.op == "call_function"]
    either = [node for node in computed if node not in facts.forward and node not in facts.backward]
    yield f"forward: {_names(node for node in computed if node in facts.forward)}"
    yield f"backward: {_names(node for node in computed if node in facts.backward)}"
    yield f"forward or backward: {_names(either)}"


def _plan_lines(planned: Planned) -> Iterator[str]:
    """Yield the names of the values handed over and recomputed, and the order of both graphs."""
    graph, plan = planned.graph, planned.plan
    nodes = graph.nodes
    yield f"handed over: {_names(nodes[index] for index in plan.saved_values)}"
    yield f"recomputed: {_names(_recomputed(graph, plan))}"
    for label, order in (("backward", planned.backward), ("forward", planned.forward)):
        names = "the program's" if order is None else _names(nodes[index] for index in order)
        yield f"order of the {label}: {names}"


def _names(nodes: Iterable[Node]) -> str:
    return ", ".join(node.name for node in nodes) or "nothing"


EXTRACT: Final[tuple[Pass[Cutting], ...]] = (
    Pass("plan_backward", plan_backward),
    Pass("order_backward", order_backward),
    Pass("order_forward", order_forward),
    Pass("extract_forward", extract_forward),
    Pass("extract_backward", extract_backward),
)
"""The passes of ``extract``, which follow the choice of saved values by any partitioner."""
MIN_CUT: Final[tuple[Pass[Cutting], ...]] = (
    Pass("classify_nodes", classify_nodes),
    Pass("merge_repetitions", merge_repetitions),
    Pass("build_network", build_network),
    Pass("cut_network", cut_network),
    *EXTRACT,
)
"""The passes of ``min_cut``, ``save_all`` and ``sac``."""
