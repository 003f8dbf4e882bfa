"""Stage graphs for tests of the format: one of each stage, with every kind of content."""

import math
import operator

import torch
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fxstack_interchange import (
    METADATA_KEYS,
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Stage,
    StageGraph,
    SymbolSpec,
)

aten = torch.ops.aten
TRACE = '  File "model.py", line 12, in forward\n    return x + y\n'


def fake(*shape, dtype=torch.float32, requires_grad=False):
    with FakeTensorMode():
        return torch.empty(shape, dtype=dtype, requires_grad=requires_grad)


def stage_graph(module, stage, inputs=None, outputs=None, symbols=()):
    """Sign a graph: every placeholder a user input, every output a user output, unless told."""
    graph = module.graph
    placeholders = graph.find_nodes(op="placeholder")
    values = graph.output_node().args[0]
    inputs = inputs or [InputSpec(InputKind.USER_INPUT, n.name) for n in placeholders]
    names = [getattr(v, "name", None) for v in values]
    outputs = outputs or [OutputSpec(OutputKind.USER_OUTPUT, name) for name in names]
    return StageGraph(module, GraphSignature(stage, tuple(inputs), tuple(outputs), tuple(symbols)))


def captured():
    """Torch-level: functions, methods, operators, containers, modes, and full metadata."""
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    linear = graph.call_function(F.linear, (x, y))
    added = graph.call_function(operator.add, (linear, 1))
    view = graph.call_method("view", (added, (2, -1)), {})
    picked = graph.call_function(operator.getitem, (view, (slice(None, None, 2), Ellipsis)))
    cat = graph.call_function(torch.cat, ([picked, picked],), {"dim": 0})
    graph.call_function(torch._C._set_grad_enabled, (False,))
    full = graph.call_function(
        torch.full, ((2,), math.inf), {"dtype": torch.float64, "device": torch.device("cpu")}
    )
    clone = graph.call_method("contiguous", (cat,), {"memory_format": torch.contiguous_format})
    graph.output((clone, full, None))
    for node in graph.nodes:
        node.meta["val"] = fake(2, 2)
    added.meta |= {
        "stack_trace": TRACE,
        "nn_module_stack": {"L__self": ("", "model.Model"), "a": ("layers.0", torch.nn.Linear)},
        "source_fn_stack": [("linear", F.linear), ("add", "operator.add")],
        "original_name": "add",
        "recompute": "must_save",
    }
    specs = [
        InputSpec(InputKind.USER_INPUT, "x", None, "args[0]"),
        InputSpec(InputKind.PARAMETER, "y", "layers.0.weight", "self.layers[0].weight"),
    ]
    return stage_graph(GraphModule(torch.nn.Module(), graph), Stage.CAPTURED, specs)


def functional():
    """Constants of several dtypes and layouts, every kind of argument, a trailing copy_."""
    graph = Graph()
    x = graph.placeholder("x")
    root = {
        "table": torch.arange(6.0).reshape(2, 3).t(),
        "wide": torch.ones(1).expand(4),
        "low": torch.tensor([1.5, -2.5], dtype=torch.bfloat16),
        "weight": torch.nn.Parameter(torch.randn(2, generator=torch.Generator().manual_seed(0))),
        "imaginary": torch.tensor([1 + 2j]),
    }
    nodes = [graph.get_attr(name) for name in root]
    again = graph.get_attr("table")
    total = graph.call_function(aten.add.Tensor, (x, 2.5), {"alpha": 1})
    whole = graph.call_function(aten.sum.dim_IntList, (total, [0]), {"dtype": torch.float64})
    graph.call_function(aten.copy_.default, (x, total))
    graph.output((whole, *nodes, again))
    for node in graph.nodes:
        node.meta["val"] = fake(3)
    return stage_graph(GraphModule(root, graph), Stage.FUNCTIONAL)


def with_subgraph():
    """A higher-order operator with two bodies, one of which holds a constant."""

    def body(constant):
        graph = Graph()
        x = graph.placeholder("x")
        attribute = graph.get_attr("shift")
        out = graph.call_function(aten.mul.Tensor, (x, attribute))
        graph.output((out,))
        for node in (x, attribute, out):
            node.meta["val"] = fake(3)
        return GraphModule({"shift": torch.full((3,), constant)}, graph)

    graph = Graph()
    flag, x = graph.placeholder("flag"), graph.placeholder("x")
    yes, no = graph.get_attr("yes"), graph.get_attr("no")
    cond = graph.call_function(torch.ops.higher_order.cond, (flag, yes, no, (x,)))
    out = graph.call_function(operator.getitem, (cond, 0))
    graph.output((out,))
    for node in (flag, x, cond, out):
        node.meta["val"] = fake(3)
    flag.meta["val"] = fake(dtype=torch.bool)
    cond.meta["val"] = (fake(3),)
    return stage_graph(GraphModule({"yes": body(2.0), "no": body(3.0)}, graph), Stage.FUNCTIONAL)


def keep_documented(graph):
    for node in graph.nodes:
        node.meta = {key: node.meta[key] for key in METADATA_KEYS if key in node.meta}


def joint(symbolic=False):
    """``y = sigmoid(x * w)`` and its backward, traced; with a symbol input when symbolic."""

    def forward_and_backward(x, w, t):
        y = (x * w).sigmoid()
        gx, gw = torch.autograd.grad(y, (x, w), t)
        return y, gx, gw

    args = [torch.randn(4, 3, requires_grad=i < 2) for i in range(3)]
    mode = "symbolic" if symbolic else "fake"
    module = make_fx(forward_and_backward, tracing_mode=mode)(*args)
    graph = module.graph
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.alias.default):
        # what torch 2.15 traces for a saved result
        node.target = torch.ops.aten.detach.default
        node.name = graph._graph_namespace.create_name("detach", None)
    x, w, t = graph.find_nodes(op="placeholder")
    outs = [n.name for n in graph.output_node().args[0]]
    specs, symbols = [], []
    if symbolic:
        with graph.inserting_before(x):
            for size, hint in zip(x.meta["val"].shape, (4, 3)):
                node = graph.placeholder(str(size))
                node.meta["val"] = size
                specs.append(InputSpec(InputKind.SYMBOL, node.name, str(size), f"x.shape[{len(specs)}]"))
                symbols.append(SymbolSpec(str(size), hint, 2, None, f"x.shape[{len(symbols)}]"))
    specs += [InputSpec(InputKind.USER_INPUT, x.name), InputSpec(InputKind.PARAMETER, w.name, "w")]
    specs += [InputSpec(InputKind.TANGENT, t.name, outs[0])]
    outputs = [
        OutputSpec(OutputKind.USER_OUTPUT, outs[0]),
        OutputSpec(OutputKind.GRADIENT, outs[1], x.name),
        OutputSpec(OutputKind.GRADIENT, outs[2], w.name),
    ]
    keep_documented(graph)
    graph.eliminate_dead_code()
    module.recompile()
    return stage_graph(module, Stage.JOINT, specs, outputs, symbols)


def forward():
    value, number = symbolic_tensor()
    graph = Graph()
    s0, x = graph.placeholder("s0"), graph.placeholder("x")
    y = graph.create_node("call_function", aten.exp.default, (x,), name="exp")
    size = graph.call_function(aten.sym_size.int, (x, 0))
    graph.output((y, y, size))
    x.meta["val"] = y.meta["val"] = value
    s0.meta["val"] = size.meta["val"] = number
    inputs = [InputSpec(InputKind.SYMBOL, "s0", str(number)), InputSpec(InputKind.USER_INPUT, "x")]
    outputs = [
        OutputSpec(OutputKind.USER_OUTPUT, "exp"),
        OutputSpec(OutputKind.SAVED, "exp"),
        OutputSpec(OutputKind.SAVED, "sym_size_int"),
    ]
    symbols = [SymbolSpec(str(number), 5, 2)]
    return stage_graph(GraphModule({}, graph), Stage.FORWARD, inputs, outputs, symbols)


def backward():
    graph = Graph()
    y, s0, t = graph.placeholder("exp"), graph.placeholder("sym_size_int"), graph.placeholder("t")
    g = graph.create_node("call_function", aten.mul.Tensor, (y, t), name="mul")
    graph.output((g, None))
    value, number = symbolic_tensor()
    for node in (y, t, g):
        node.meta["val"] = value
    s0.meta["val"] = number
    inputs = [
        InputSpec(InputKind.SAVED, "exp", "exp"),
        InputSpec(InputKind.SAVED, "sym_size_int", "sym_size_int"),
        InputSpec(InputKind.TANGENT, "t", "exp"),
    ]
    outputs = [OutputSpec(OutputKind.GRADIENT, "mul", "x"), OutputSpec(OutputKind.GRADIENT, None, "w")]
    return stage_graph(GraphModule({}, graph), Stage.BACKWARD, inputs, outputs)


def symbolic_tensor():
    """Return a fake tensor of shape [s0, s0 + 3] with a strided layout, and s0."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    value = mode.from_tensor(torch.empty(5, 4), symbolic_context=context)
    size = value.shape[0]
    with mode:
        return torch.empty(size, size // 2 + 3), size


GRAPHS = {
    "captured": captured,
    "functional": functional,
    "subgraph": with_subgraph,
    "joint": joint,
    "joint_symbolic": lambda: joint(symbolic=True),
    "forward": forward,
    "backward": backward,
}
