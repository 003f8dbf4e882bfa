"""Joint graphs for tests: traced from small functions, signed as the format asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx.experimental.proxy_tensor import make_fx

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
    verify,
)
from fxstack_partition import partition

if TYPE_CHECKING:
    from torch.fx import GraphModule


def trace_joint(fn, *inputs, dynamic=False, decompositions=None, parameters=()):
    """Trace ``fn`` (tensors -> tensor or tuple) and its backward; return the joint StageGraph."""
    outputs = _as_tuple(fn(*inputs))
    tangents = [torch.ones_like(out) for out in outputs]
    needs = [x.is_floating_point() and x.requires_grad for x in inputs]

    def joint(*args):
        primals, given = args[: len(inputs)], args[len(inputs) :]
        outs = _as_tuple(fn(*primals))
        wanted = [x for x, need in zip(primals, needs) if need]
        differentiable = [(o, t) for o, t in zip(outs, given) if o.requires_grad]
        grads = torch.autograd.grad(
            [o for o, _ in differentiable], wanted, [t for _, t in differentiable], allow_unused=True
        )
        each = iter(grads)
        return (*outs, *(next(each) if need else None for need in needs))

    mode = "symbolic" if dynamic else "fake"
    gm = make_fx(joint, tracing_mode=mode, decomposition_table=decompositions)(*inputs, *tangents)
    return describe(gm, len(inputs), len(outputs), parameters)


def describe(gm: GraphModule, n_primals, n_forward, parameters=()) -> StageGraph:
    """Give a traced joint graph its signature; sizes are bound by symbol inputs put in front."""
    graph = gm.graph
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    for i, node in enumerate(placeholders[n_primals:]):
        node._rename(f"tangent_{i}")
    symbols = bind_symbols(graph, placeholders)
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    values = list(output.args[0])
    names = [getattr(v, "name", None) for v in values]
    inputs = [InputSpec(InputKind.SYMBOL, n.name, spec.name) for n, spec in symbols]
    inputs += [
        InputSpec(InputKind.PARAMETER if i in parameters else InputKind.USER_INPUT, n.name, None)
        for i, n in enumerate(placeholders[:n_primals])
    ]
    inputs += [InputSpec(InputKind.TANGENT, n.name, names[i]) for i, n in enumerate(placeholders[n_primals:])]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, n) for n in names[:n_forward]]
    outputs += [
        OutputSpec(OutputKind.GRADIENT, n, p.name)
        for n, p in zip(names[n_forward:], placeholders[:n_primals])
    ]
    for node in graph.nodes:
        node.meta = {key: node.meta[key] for key in METADATA_KEYS if key in node.meta}
    graph.eliminate_dead_code()
    gm.recompile()
    signature = GraphSignature(Stage.JOINT, tuple(inputs), tuple(outputs), tuple(s for _, s in symbols))
    return StageGraph(gm, signature)


def bind_symbols(graph, placeholders):
    found = {}
    for node in placeholders:
        value = node.meta["val"]
        for size in value.shape:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                found.setdefault(str(size.node.expr), size)
    bound = []
    with graph.inserting_before(placeholders[0]):
        for name, size in found.items():
            node = graph.placeholder(name)
            node.meta["val"] = size
            bound.append((node, SymbolSpec(name, size.node.hint, 2)))
    return bound


def symbol_values(joint: StageGraph, tensors):
    """Return the integers that the symbol inputs take for these tensors."""
    values = {}
    placeholders = [n for n in joint.graph_module.graph.nodes if n.op == "placeholder"]
    fakes = [n for n in placeholders if isinstance(n.meta["val"], torch.Tensor)]
    for node, tensor in zip(fakes, tensors):
        for size, actual in zip(node.meta["val"].shape, tensor.shape):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                values[str(size.node.expr)] = actual
    return [values[s.name] for s in joint.signature.symbols]


def run_joint(joint: StageGraph, inputs, tangents):
    """Run the joint graph itself; returns (forward outputs, gradients)."""
    symbols = symbol_values(joint, inputs)
    out = joint.graph_module(*symbols, *inputs, *tangents)
    n = len([s for s in joint.signature.outputs if s.kind is not OutputKind.GRADIENT])
    return list(out[:n]), list(out[n:])


def run_partition(joint, part, inputs, tangents):
    """Run forward, hand over what is saved by kind and name, run backward."""
    symbols = symbol_values(joint, inputs)
    out = part.forward.graph_module(*symbols, *inputs)
    specs = part.forward.signature.outputs
    saved = [(s, v) for s, v in zip(specs, out) if s.kind is OutputKind.SAVED]
    received = part.backward.signature.inputs_of(InputKind.SAVED)
    assert [s.name for s, _ in saved] == [s.target for s in received]
    forward = [v for s, v in zip(specs, out) if s.kind is not OutputKind.SAVED]
    grads = part.backward.graph_module(*(v for _, v in saved), *tangents)
    return forward, list(grads)


def _as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def check(fn, *inputs, name="min_cut", dynamic=False, at=None, parameters=()):
    """Partition, verify, run both ways on ``at`` (default: the inputs), compare bit for bit."""
    joint = trace_joint(fn, *inputs, dynamic=dynamic, parameters=parameters)
    part = partition(joint, name)
    verify(part.forward)
    verify(part.backward)
    compare(joint, part, at or inputs)
    return part


def compare(joint, part, inputs):
    inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    torch.manual_seed(1)
    symbols = symbol_values(joint, inputs)
    shapes = [s for s in joint.graph_module(*symbols, *inputs, *_zeros(joint, symbols))]
    n = len([s for s in joint.signature.outputs if s.kind is not OutputKind.GRADIENT])
    tangents = [torch.randn_like(s) for s in shapes[:n]]
    torch.manual_seed(0)
    expected = run_joint(joint, inputs, tangents)
    drawn = torch.get_rng_state()
    torch.manual_seed(0)
    got = run_partition(joint, part, inputs, tangents)
    assert torch.equal(torch.get_rng_state(), drawn)
    for want, have in zip(expected[0] + expected[1], got[0] + got[1], strict=True):
        assert (want is None) == (have is None)
        if want is not None:
            torch.testing.assert_close(have, want, rtol=0, atol=0, equal_nan=True)
            assert have.stride() == want.stride()


def _zeros(joint, symbols):
    known = dict(zip([s.name for s in joint.signature.symbols], symbols))
    tangents = {s.name for s in joint.signature.inputs_of(InputKind.TANGENT)}

    def size(value):
        if isinstance(value, int):
            return value
        return int(value.node.expr.subs({s: known[str(s)] for s in value.node.expr.free_symbols}))

    nodes = [n for n in joint.graph_module.graph.nodes if n.name in tangents]
    values = [n.meta["val"] for n in nodes]
    layouts = [([size(x) for x in v.shape], [size(x) for x in v.stride()]) for v in values]
    return [torch.empty_strided(*layout).zero_() for layout in layouts]


def mutating_joint():
    """x is read by the backward and updated by the caller: ``y = x * x; x <- x + 1``."""
    joint = trace_joint(
        lambda x, w: (x.detach() + 1, x.detach().view(-1) * w),
        torch.rand(4, requires_grad=True),
        torch.rand(4, requires_grad=True),
    )
    signature = joint.signature
    first = signature.outputs[0]
    updated = OutputSpec(OutputKind.MUTATED_INPUT, first.name, "arg0_1")
    outputs = (updated, *signature.outputs[1:])
    return StageGraph(
        joint.graph_module, type(signature)(signature.stage, signature.inputs, outputs, signature.symbols)
    )


def demand_values_before_the_update(part):
    """Assert that the backward of a partition of ``mutating_joint`` reads x as it was when the forward ran."""
    x, w = torch.randn(4), torch.randn(4)
    new, _out, *saved = part.forward.graph_module(x, w)
    before = x.clone()
    x.copy_(new)
    grads = part.backward.graph_module(*saved, torch.zeros(4), torch.ones(4))
    torch.testing.assert_close(grads[1], before)
