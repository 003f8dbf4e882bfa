"""Autocast, checkpointing, custom and higher-order operators, modes."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from compare import as_graph, check, compiled
from helpers import run_graph, save_everything
from test_semantics import A, N, leaf, mk
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from fxstack_functionalize import UnsupportedGraphError, aot, trace_inference, trace_joint
from fxstack_interchange import show, verify


def autocast_region(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
    return y.float() + x @ w, y


def test_autocast_inside():
    check(autocast_region, lambda: (leaf(3, 3), leaf(3, 3)))


def test_autocast_outside():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(lambda x, w: ((x @ w).relu() @ w, x + 1), lambda: (leaf(3, 3), leaf(3, 3)))


def test_checkpoint():
    body = lambda x: torch.nn.functional.dropout(x.sin(), 0.5).exp()
    check(lambda x: (checkpoint(body, x, use_reentrant=False) * 2,), mk(A))


def enter_exit_graph():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_grad_enabled, (False,))
    y = graph.call_method("mul", (x, 2))
    graph.call_function(torch._C._set_grad_enabled, (True,))
    cast = graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, True))
    z = graph.call_function(torch.mm, (x, x))
    graph.call_function(torch.amp.autocast_mode._exit_autocast, (cast,))
    graph.output((y, z))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def test_state_setting_nodes():
    gm = enter_exit_graph()
    x = leaf(3, 3)
    y, z = aot(gm, [x], fw_compiler=run_graph, partitioner=save_everything)(x)
    assert not y.requires_grad
    assert z.requires_grad
    assert z.dtype == torch.bfloat16
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


@torch.library.custom_op("fxstack_test::scale_", mutates_args={"x"})
def scale_(x: torch.Tensor, by: float) -> None:
    x.mul_(by)


@torch.library.custom_op("fxstack_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(lambda x: torch.empty_like(x))
twice.register_autograd(lambda ctx, g: g * 2)


def custom_graph(*targets):
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.ops.fxstack_test.twice.default, (x,))
    z = graph.call_method("clone", (y,))
    graph.call_function(torch.ops.fxstack_test.scale_.default, (z, 3.0))
    graph.output((y, z))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def test_custom_operators():
    gm = custom_graph()
    for grad in (True, False):
        x = leaf(3, grad=grad).detach().requires_grad_(False)
        y, z = aot(gm, [x], fw_compiler=run_graph, partitioner=save_everything)(x)
        assert torch.equal(y, x * 2)
        assert torch.equal(z, x * 6)


def test_custom_operator_with_gradient():
    check(lambda x: (torch.ops.fxstack_test.twice(x).sin(),), mk(A))


def cond_graph():
    branch = lambda fn: torch.fx.symbolic_trace(lambda x: (fn(x),))
    root = torch.nn.Module()
    root.yes, root.no = branch(torch.sin), branch(torch.cos)
    graph = torch.fx.Graph()
    p, x = graph.placeholder("p"), graph.placeholder("x")
    yes, no = graph.get_attr("yes"), graph.get_attr("no")
    out = graph.call_function(torch.ops.higher_order.cond, (p, yes, no, (x,)))
    first = graph.call_function(__import__("operator").getitem, (out, 0))
    graph.output((graph.call_method("mul", (first, 2)),))
    return torch.fx.GraphModule(root, graph)


@pytest.mark.parametrize("grad", [False, True])
def test_cond(grad):
    x = leaf(3, grad=grad)
    f = aot(cond_graph(), [torch.tensor(True), x], fw_compiler=run_graph, partitioner=save_everything)
    for p, fn in ((True, torch.sin), (False, torch.cos)):
        assert torch.equal(f(torch.tensor(p), x)[0], fn(x) * 2)


def test_inference_mode():
    with torch.inference_mode():
        f = compiled(lambda x, y: (x.add_(1), x * 2, y[0]), (leaf(3, grad=False), leaf(3, grad=False)))
        x = leaf(3, grad=False)
        same, y, z = f(x, leaf(3, grad=False))
        assert same is x
        assert torch.equal(x, leaf(3, grad=False) + 1)
        assert torch.equal(y, 2 * x)
        assert y.is_inference()


def test_checkpoint_node_is_tagged():
    root, graph = torch.nn.Module(), torch.fx.Graph()
    root.body = torch.fx.symbolic_trace(lambda x: torch.nn.functional.dropout(x.sin(), 0.5).exp())
    x = graph.placeholder("x")
    y = graph.call_function(checkpoint, (graph.get_attr("body"), x), {"use_reentrant": False})
    graph.output((y,))
    gm = torch.fx.GraphModule(root, graph)
    joint = trace_joint(gm, [leaf(3)])
    nodes = {node.name: node for node in joint.graph_module.graph.nodes}
    assert nodes["sin"].meta["recompute"] == "must_recompute"
    verify(joint)


def checkpoint_graph(body, context_fn):
    root, graph = torch.nn.Module(), torch.fx.Graph()
    root.body = torch.fx.symbolic_trace(body)
    root.context_fn = context_fn
    x = graph.placeholder("x")
    options = {"use_reentrant": False, "context_fn": graph.get_attr("context_fn")}
    graph.output((graph.call_function(checkpoint, (graph.get_attr("body"), x), options),))
    return torch.fx.GraphModule(root, graph)


def save_matmul(ctx, op, *args, **kwargs):
    wide = args[0].shape[0] > 1
    save = op is torch.ops.aten.mm.default and wide
    return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("policy", [save_matmul, [torch.ops.aten.mm.default]])
def test_selective_checkpoint_tags(policy):
    contexts = partial(create_selective_checkpoint_contexts, policy)
    gm = checkpoint_graph(lambda x: (x @ x).sin().exp(), contexts)
    joint = trace_joint(gm, [leaf(3, 3)])
    nodes = {node.name: node for node in joint.graph_module.graph.nodes}
    assert nodes["mm"].meta["recompute"] == "must_save"
    assert nodes["sin"].meta["recompute"] == nodes["exp"].meta["recompute"] == "prefer_recompute"
    verify(joint)
    x, y = leaf(3, 3), leaf(3, 3)
    aot(gm, [x], fw_compiler=run_graph, partitioner=save_everything)(x)[0].sum().backward()
    (y @ y).sin().exp().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_foreign_checkpoint_contexts_are_refused():
    gm = checkpoint_graph(lambda x: x.sin(), lambda: (nullcontext(), nullcontext()))
    with pytest.raises(UnsupportedGraphError, match="context_fn of its own"):
        trace_joint(gm, [leaf(3)])


def swap(x, y):
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return (x + y,)


def test_swapped_inputs():
    check(swap, mk(N, lambda: leaf(3, 4, grad=False) * 2))


def test_saved_tensor_hooks_see_what_is_saved():
    seen = []
    f = compiled(lambda x: (x.exp() * x,), (leaf(3),))
    x = leaf(3)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.shape) or t, lambda t: t):
        y = f(x)[0]
    y.sum().backward()
    assert seen
    torch.testing.assert_close(x.grad, (x.exp() * x + x.exp()).detach())


def test_inner_gradient():
    def fn(x):
        y = (x**2).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return (g * x,)

    check(fn, mk(A))


def test_vmap_and_functional_gradient():
    check(
        lambda x: (torch.vmap(lambda r: r.sin().sum())(x), torch.func.grad(lambda t: t.sin().sum())(x)), mk(N)
    )


def test_provenance_reaches_forward_and_backward():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_method("sin", (x,))
    y.meta = {"stack_trace": "line one", "nn_module_stack": {"a": ("a", "A")}}
    z = graph.call_method("exp", (y,))
    z.meta = {"stack_trace": "line two", "recompute": "must"}
    graph.output((z,))
    joint = trace_joint(torch.fx.GraphModule(torch.nn.Module(), graph), [leaf(3)])
    nodes = {node.name: node for node in joint.graph_module.graph.nodes}
    assert nodes["sin"].meta["stack_trace"] == nodes["cos"].meta["stack_trace"] == "line one"
    assert nodes["exp"].meta["recompute"] == "must"
    assert nodes["mul"].meta["stack_trace"] == "line two"
    assert "recompute" not in nodes["mul"].meta
    allowed = {"val", "stack_trace", "nn_module_stack", "original_name", "recompute", "source_fn_stack"}
    assert all(set(node.meta) <= allowed for node in nodes.values())


def test_inference_graph_keeps_mutation_inside():
    stage = trace_inference(as_graph(lambda x: (x.add_(1), x * 2)[1:], 1), [leaf(3, grad=False)])
    last = [n for n in stage.graph_module.graph.nodes if n.op == "call_function"][-1]
    assert last.target is torch.ops.aten.copy_.default
    stage = trace_inference(
        as_graph(lambda x: (x.add_(1), x * 2)[1:], 1), [leaf(3, grad=False)], keep_mutations=False
    )
    assert [str(spec.kind) for spec in stage.signature.outputs] == ["mutated_input", "user_output"]


def test_decompositions_are_applied():
    from torch._decomp import get_decompositions

    table = get_decompositions([torch.ops.aten.silu, torch.ops.aten.silu_backward])
    joint = trace_joint(as_graph(torch.nn.functional.silu, 1), [leaf(3)], decompositions=table)
    names = {str(n.target) for n in joint.graph_module.graph.nodes}
    assert not any("silu" in name for name in names)


def test_joint_graph_needs_a_gradient():
    with pytest.raises(ValueError, match="no output of the graph requires a gradient"):
        trace_joint(as_graph(torch.sin, 1), [leaf(3, grad=False)])


class CapturedCall:
    """Has what the result of capture has: a graph, and the inputs that it was made from."""

    def __init__(self, graph_module, example_inputs):
        self.graph_module, self.example_inputs = graph_module, example_inputs


@pytest.mark.parametrize("tracer", [trace_joint, trace_inference])
def test_a_captured_call_needs_no_inputs(tracer):
    gm, inputs = as_graph(torch.sin, 1), [leaf(3)]
    assert show(tracer(CapturedCall(gm, inputs))) == show(tracer(gm, inputs))


class OddNames(torch.nn.Module):
    """A parameter, and a part with a parameter, whose paths become the same identifier; a digit."""

    def __init__(self):
        super().__init__()
        self.a_b = torch.nn.Parameter(torch.randn(3))
        self.a = torch.nn.ParameterDict({"b": torch.randn(3)})
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 3))

    def forward(self, x):
        return self.layers(x) * self.a_b + self.a["b"]


@pytest.mark.parametrize("make", [OddNames, lambda: torch.nn.Sequential(torch.nn.Linear(3, 3))])
def test_parameters_may_have_any_path(make):
    module = make()
    example = torch.randn(2, 3)
    graph = torch.fx.symbolic_trace(module)
    stage = trace_inference(graph, [example])
    targets = [spec.target for spec in stage.signature.inputs[1:]]
    parameters = dict(module.named_parameters())
    arguments = [parameters[target].detach() for target in targets]
    torch.testing.assert_close(stage.graph_module(example, *arguments), (module(example).detach(),))
