"""Convert joint graphs and partitioners of torch's ahead-of-time layer to this package's records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxstack_interchange import (
    METADATA_KEYS,
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Partition,
    Stage,
    StageGraph,
    SymbolSpec,
)
from fxstack_interchange.format.metadata import recompute_tag
from fxstack_interchange.modules import make_graph_module
from fxstack_partition.extraction.check import check_partition
from fxstack_partition.extraction.graphs import copy_node
from fxstack_partition.joint.joint import BACKWARD_STATE, JointFacts, JointGraphError, analyze
from fxstack_partition.options import PartitionOptions
from fxstack_partition.registry import Partitioner
from fxstack_partition.torch_interop.repairs import save_copies_of_inputs, save_generator_states


class JointGraph(StageGraph):
    """A joint graph from torch's ahead-of-time layer; a ``StageGraph`` like any other."""

    __slots__ = ()

    @classmethod
    def from_aot(
        cls,
        joint_module: GraphModule,
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: Sequence[int] = (),
    ) -> JointGraph:
        """Convert the joint graph that torch passes to a ``partition_fn``. The module is copied.

        Symbols that only shapes contain become further inputs in front. With functional random numbers
        (``functionalize_rng_ops``), each stage has its own seed and offset as inputs, and its new offset as
        its last result.

        Raises:
            JointGraphError: if the graph has inputs that are not supported (states of generators).
        """
        graph = Graph()
        env: dict[Node, Node] = {}
        placeholders = list(joint_module.graph.find_nodes(op="placeholder"))
        added = _bind_symbols(graph, placeholders)
        rest = [node for node in joint_module.graph.nodes if node.op != "placeholder"]
        for node in (*sorted(placeholders, key=_rank), *rest):
            env[node] = copy_node(graph, node, env)
        static = [index + added for index in static_lifetime_input_indices]
        signed = sign_joint(make_graph_module(joint_module, graph), num_fwd_outputs, static)
        for node in graph.nodes:
            node.meta = {key: node.meta[key] for key in METADATA_KEYS if key in node.meta}
            tag = node.meta.get("recompute")
            if tag is not None:
                node.meta["recompute"] = recompute_tag(tag)
        return cls(signed.graph_module, signed.signature)


def _bind_symbols(graph: Graph, placeholders: list[Node]) -> int:
    """Add an input for each symbol of a shape that is not yet an input. Return their number."""
    values = [node.meta.get("val") for node in placeholders]
    bound = {str(v.node.expr) for v in values if isinstance(v, torch.SymInt)}
    free: dict[str, torch.SymInt] = {}
    for value in values:
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                free.setdefault(str(size.node.expr), size)
    missing = {name: size for name, size in free.items() if name not in bound}
    for name, size in missing.items():
        graph.placeholder(name).meta["val"] = size
    return len(missing)


_STATES = "rng_state"
_BACKWARD_SEEDS = ("bwd_seed", "bwd_base_offset")
_SEEDS = ("fwd_seed", "fwd_base_offset", *_BACKWARD_SEEDS)
"""torch's names for the inputs of functional random numbers."""


def _rank(node: Node) -> int:
    """Return the rank of an input: primals, the forward's seeds, tangents, the backward's seeds."""
    if any(word in node.name for word in _BACKWARD_SEEDS):
        return 3
    if "tangents" in node.name:
        return 2
    return int(any(word in node.name for word in _SEEDS))


def sign_joint(module: GraphModule, count: int, static: Sequence[int]) -> StageGraph:
    """Return torch's joint graph with a signature: ``count`` outputs of the forward, then gradients."""
    placeholders = list(module.graph.find_nodes(op="placeholder"))
    for node in placeholders:
        if _STATES in node.name:
            msg = (
                f"{node.name!r} carries the state of a generator, which joint graphs of this project do not; "
                "turn graphsafe_rng_functionalization off"
            )
            raise JointGraphError(msg)
    primals, seeds, tangents, late = ([n for n in placeholders if _rank(n) == rank] for rank in range(4))
    output = module.graph.output_node()
    values = flat_outputs(output)
    outputs = _forward_specs(output, values[:count], primals)
    specs = {n: _primal_spec(n, index in set(static)) for index, n in enumerate(primals)}
    specs |= {n: _tangent_spec(n, i, values[:count]) for i, n in enumerate(tangents)}
    specs |= {n: InputSpec(InputKind.RNG_STATE, n.name, "forward") for n in seeds}
    specs |= {n: InputSpec(InputKind.RNG_STATE, n.name, BACKWARD_STATE) for n in late}
    # The last gradients belong to the last inputs; the backward's new offset is the very last result.
    sources = [*primals, *late[-1:]]
    gradients = [
        OutputSpec(OutputKind.GRADIENT, _name(value), source.name)
        for value, source in zip(values[count:], sources[len(sources) - len(values) + count :], strict=True)
    ]
    signature = GraphSignature(
        Stage.JOINT,
        tuple(specs[node] for node in placeholders),
        (*outputs, *gradients),
        tuple(_symbols(primals)),
    )
    return StageGraph(module, signature)


def flat_outputs(output: Node) -> list[Any]:
    """Return the outputs of a graph in order: torch groups the outputs of a joint graph by forward and backward."""
    values = output.args[0]
    if isinstance(values, tuple | list) and all(isinstance(v, tuple | list) for v in values):
        return [item for part in values for item in part]
    return list(values) if isinstance(values, tuple | list) else [values]


def _primal_spec(node: Node, static: bool) -> InputSpec:
    """Return the specification of a forward input. ``static``: torch says that the input stays the same tensor."""
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
        return InputSpec(InputKind.SYMBOL, node.name, str(value.node.expr))
    kind = InputKind.PARAMETER if static else InputKind.USER_INPUT
    return InputSpec(kind, node.name, node.name if static else None)


def _tangent_spec(node: Node, index: int, outputs: list[Any]) -> InputSpec:
    """Return the spec of a tangent.

    If torch does not name the tangent's output, it is number ``index`` of the floating-point and complex
    outputs.
    """
    position = getattr(getattr(node.meta.get("desc"), "output", None), "idx", None)
    differentiable = [
        value
        for value in outputs
        if isinstance(value, Node)
        and isinstance(value.meta.get("val"), torch.Tensor)
        and value.meta["val"].dtype.is_floating_point | value.meta["val"].dtype.is_complex
    ]
    if isinstance(position, int) and position < len(outputs) and isinstance(outputs[position], Node):
        return InputSpec(InputKind.TANGENT, node.name, outputs[position].name)
    target = differentiable[index].name if index < len(differentiable) else None
    return InputSpec(InputKind.TANGENT, node.name, target)


def _forward_specs(output: Node, values: list[Any], primals: list[Node]) -> list[OutputSpec]:
    """Return the specs of the forward's outputs; torch's descriptions say which outputs are mutated inputs."""
    descriptions = list(output.meta.get("desc") or [None] * len(values))
    by_description = {str(n.meta.get("desc")): n.name for n in primals if n.meta.get("desc")}
    specs = []
    for value, description in zip(values, descriptions, strict=False):
        mutated = by_description.get(str(getattr(description, "mutated_input", None)))
        kind = OutputKind.USER_OUTPUT if mutated is None else OutputKind.MUTATED_INPUT
        specs.append(OutputSpec(kind, _name(value), mutated))
    return specs


def _symbols(primals: list[Node]) -> list[SymbolSpec]:
    """Return the symbols in the shapes of the primals, with their hints."""
    symbols: dict[str, SymbolSpec] = {}
    for node in primals:
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        for size in sizes:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                hint = size.node.hint if size.node.has_hint() else None
                symbols.setdefault(str(size.node.expr), SymbolSpec(str(size.node.expr), hint))
    return list(symbols.values())


def from_partition_fn(
    partition_fn: Callable[..., tuple[GraphModule, GraphModule]], *, check: bool = True
) -> Partitioner:
    """Return a partitioner that calls a function with torch's signature, for ``register`` and ``compare``.

    ``partition_fn(joint_module, joint_inputs, *, num_fwd_outputs, static_lifetime_input_indices)`` gets the
    joint graph with torch's names (``primals_1``, ``tangents_1``) and tags. If its backward draws random
    numbers again, as torch's partitioner does under budgets, the forward saves the generator's state (``repairs``).
    Inputs that the forward updates are saved as copies. ``check`` refuses wrong results; turn it off to
    compare figures alone.
    """

    def partitioner(joint: StageGraph, options: PartitionOptions) -> Partition:
        """Run torch's partition function on the joint graph in torch's form. Repair and sign both parts."""
        facts = analyze(joint)
        module = _in_torch_form(facts)
        static = [
            i for i, n in enumerate(facts.primals) if facts.input_specs[n].kind in options.static_inputs
        ]
        forward, backward = partition_fn(
            module,
            [node.meta.get("val") for node in (*facts.primals, *facts.tangents)],
            num_fwd_outputs=len(facts.forward_outputs),
            static_lifetime_input_indices=static,
        )
        save_generator_states(forward, backward)
        save_copies_of_inputs(facts, forward, backward)
        _restore_names(facts, forward, backward)
        part = _from_modules(facts, forward, backward)
        if check:
            check_partition(joint, part)
        return part

    return partitioner


def _in_torch_form(facts: JointFacts) -> GraphModule:
    """Return the joint graph with torch's names of inputs and torch's tags of forward and backward nodes."""
    graph = Graph()
    env: dict[Node, Node] = {}
    for word, nodes in (("primals", facts.primals), ("tangents", facts.tangents)):
        for index, node in enumerate(nodes, 1):
            env[node] = graph.placeholder(f"{word}_{index}")
            env[node].meta = dict(node.meta)
    started = False
    for node in facts.nodes[:-1]:
        if node.op == "placeholder":
            continue
        started = started or node in facts.backward
        env[node] = copy_node(graph, node, env)
        in_forward = node in facts.forward or not started
        env[node].meta["partitioner_tag"] = "is_forward" if in_forward else "is_backward"
    values = (*facts.forward_outputs, *facts.gradients)
    graph.output(tuple(env[v] if isinstance(v, Node) else v for v in values))
    return make_graph_module(facts.graph.graph_module, graph)


def _restore_names(facts: JointFacts, *modules: GraphModule) -> None:
    """Give the inputs their names in the joint graph, by which a runtime knows them."""
    names: dict[str, str] = {}
    for word, nodes in (("primals", facts.primals), ("tangents", facts.tangents)):
        names |= {f"{word}_{index}": node.name for index, node in enumerate(nodes, 1)}
    for module in modules:
        for node in module.graph.find_nodes(op="placeholder"):
            if node.name in names:
                node._rename(names[node.name])
        module.recompile()


def _from_modules(facts: JointFacts, forward: GraphModule, backward: GraphModule) -> Partition:
    """Return a partition of the two modules, with the backward's inputs in this project's order."""
    count = len(facts.forward_outputs)
    outputs = list(forward.graph.output_node().args[0])
    saved = outputs[count:]
    forward_specs = [
        OutputSpec(spec.kind, _name(value), spec.target)
        for spec, value in zip(facts.forward_specs, outputs, strict=False)
    ]
    primal_names = [n.name for n in forward.graph.find_nodes(op="placeholder")]
    inputs = [
        InputSpec(facts.input_specs[n].kind, name, facts.input_specs[n].target)
        for n, name in zip(facts.primals, primal_names, strict=True)
    ]
    symbols = facts.graph.signature.symbols
    stage = GraphSignature(
        Stage.FORWARD,
        tuple(inputs),
        (*forward_specs, *(OutputSpec(OutputKind.SAVED, _name(v)) for v in saved)),
        symbols,
    )
    placeholders = {n.name: n for n in backward.graph.find_nodes(op="placeholder")}
    received = [n.name for n in saved if n.name in placeholders]
    tangents = [name for name in placeholders if name not in set(received)]
    module = reorder_inputs(backward, [placeholders[name] for name in (*received, *tangents)])
    specs = [InputSpec(InputKind.SAVED, name, name) for name in received]
    for name, node in zip(tangents, facts.tangents, strict=True):
        spec = facts.input_specs[node]
        specs.append(InputSpec(spec.kind, name, spec.target))
    values: Any = module.graph.output_node().args[0]
    gradients = [
        OutputSpec(OutputKind.GRADIENT, _name(value), spec.target)
        for value, spec in zip(values, facts.gradient_specs, strict=True)
    ]
    back = GraphSignature(Stage.BACKWARD, tuple(specs), tuple(gradients), symbols)
    ran = {n.name for n in module.graph.nodes if n.op == "call_function"}
    recomputed = [n.name for n in facts.nodes if n.name in ran and n not in facts.backward]
    return Partition(StageGraph(forward, stage), StageGraph(module, back), tuple(received), tuple(recomputed))


def _name(value: object) -> str | None:
    return value.name if isinstance(value, Node) else None


def reorder_inputs(module: GraphModule, placeholders: Sequence[Node]) -> GraphModule:
    """Return a copy of the module that has its placeholders in this order."""
    graph = Graph()
    env: dict[Node, Node] = {}
    for node in (*placeholders, *(n for n in module.graph.nodes if n.op != "placeholder")):
        env[node] = copy_node(graph, node, env)
    return make_graph_module(module, graph)
