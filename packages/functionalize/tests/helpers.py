"""A partitioner and a compiler that are trivial, and the comparison of eager with ahead-of-time."""

import torch
from torch.fx import Graph, GraphModule

from fxstack_interchange import (
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Partition,
    Stage,
    StageGraph,
)


def run_graph(module, example_inputs):
    """The trivial compiler."""
    return module.forward


def save_everything(joint):
    """Cut right before the backward: whatever does not need a tangent belongs to the forward."""
    signature, graph = joint.signature, joint.graph_module.graph
    nodes = list(graph.nodes)
    values = list(graph.output_node().args[0])
    count = sum(spec.kind is not OutputKind.GRADIENT for spec in signature.outputs)
    tangents = {spec.name for spec in signature.inputs_of(InputKind.TANGENT)}
    late = set()
    for node in nodes:
        if node.name in tangents or any(n in late for n in node.all_input_nodes):
            late.add(node)
    late.discard(graph.output_node())
    needed = set()
    stack = [v for v in values[count:] if isinstance(v, torch.fx.Node)]
    saved = []
    while stack:
        node = stack.pop()
        if node in needed:
            continue
        needed.add(node)
        if node.op == "get_attr":
            continue
        if node in late:
            stack.extend(node.all_input_nodes)
        else:
            saved.append(node)
    order = {node: i for i, node in enumerate(nodes)}
    expand = []
    for node in sorted(saved, key=order.get):
        val = node.meta.get("val")
        expand += (
            [u for u in node.users if u.target.__name__ == "getitem"]
            if isinstance(val, (tuple, list))
            else [node]
        )
    tensors = [n for n in dict.fromkeys(expand) if isinstance(n.meta["val"], torch.Tensor)]
    symbols = [n for n in dict.fromkeys(expand) if not isinstance(n.meta["val"], torch.Tensor)]
    numbers = [n for n in nodes if n.op == "placeholder" and isinstance(n.meta["val"], torch.SymInt)]
    saved = tensors + list(dict.fromkeys(symbols + numbers))
    forward = _forward(joint, nodes, late, values[:count], saved, count)
    backward = _backward(joint, nodes, late, values[count:], saved, tangents)
    return Partition(forward, backward, tuple(n.name for n in saved))


def _copy(graph, nodes, env):
    for node in nodes:
        env[node] = graph.node_copy(node, env.__getitem__)


def _forward(joint, nodes, late, outputs, saved, count):
    graph, env = Graph(), {}
    _copy(graph, [n for n in nodes if n not in late and n.op != "output"], env)
    graph.output(tuple(env[n] if isinstance(n, torch.fx.Node) else n for n in [*outputs, *saved]))
    graph.eliminate_dead_code()
    inputs = tuple(s for s in joint.signature.inputs if s.kind is not InputKind.TANGENT)
    specs = joint.signature.outputs[:count] + tuple(OutputSpec(OutputKind.SAVED, n.name) for n in saved)
    return StageGraph(GraphModule(joint.graph_module, graph), GraphSignature(Stage.FORWARD, inputs, specs))


def _backward(joint, nodes, late, outputs, saved, tangents):
    graph, env = Graph(), {}
    for node in saved:
        env[node] = graph.placeholder(node.name)
        env[node].meta = dict(node.meta)
    _copy(graph, [n for n in nodes if n.name in tangents], env)
    _copy(graph, [n for n in nodes if n.op == "get_attr" and n not in env], env)
    _copy(graph, [n for n in nodes if n in late and n.name not in tangents], env)
    for n in outputs:
        if isinstance(n, torch.fx.Node) and n not in env:
            env[n] = graph.node_copy(n, env.__getitem__)
    graph.output(tuple(env[n] if isinstance(n, torch.fx.Node) else n for n in outputs))
    graph.eliminate_dead_code()
    inputs = tuple(InputSpec(InputKind.SAVED, n.name, n.name) for n in saved)
    inputs += joint.signature.inputs_of(InputKind.TANGENT)
    specs = joint.signature.outputs_of(OutputKind.GRADIENT)
    return StageGraph(GraphModule(joint.graph_module, graph), GraphSignature(Stage.BACKWARD, inputs, specs))
