"""A checkpoint's backward draws what its forward drew, from the state that the graph was given: through the partitioner."""

import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from fxstack_functionalize import AotOptions, aot, trace_joint, with_random_state
from fxstack_functionalize.random.functional_random import NAMESPACE
from fxstack_partition import PartitionOptions, partition


def region(x):
    return F.dropout(x.sin(), 0.5).exp()


def checkpointed(x):
    return checkpoint(region, x, use_reentrant=False).sum()


def checkpointed_graph():
    root, graph = torch.nn.Module(), torch.fx.Graph()
    root.region = torch.fx.symbolic_trace(region)
    x = graph.placeholder("x")
    tagged = torch.ops.higher_order.tag_activation_checkpoint
    y = graph.call_function(tagged, (graph.get_attr("region"), x), {"use_reentrant": False})
    graph.output((graph.call_method("sum", (y,)),))
    return torch.fx.GraphModule(root, graph)


def names_of(stage):
    return [str(node.target) for node in stage.graph_module.graph.nodes]


def test_a_backward_draws_the_same_again():
    x = (torch.arange(8.0) + 1).requires_grad_()
    joint = trace_joint(*with_random_state(checkpointed_graph(), [x]))
    cut = partition(joint, "min_cut", PartitionOptions())
    assert any(name.startswith(NAMESPACE) for name in names_of(cut.backward))
    torch.manual_seed(3)
    checkpointed(x).backward()
    wanted, after, x.grad = x.grad, torch.get_rng_state(), None
    compiled = aot(
        checkpointed_graph(),
        [x],
        fw_compiler=lambda graph, _inputs: graph,
        partitioner=lambda stage: partition(stage, "min_cut"),
        options=AotOptions(functional_random=True, verify=True),
    )
    torch.manual_seed(3)
    compiled(x)[0].backward()
    assert torch.equal(x.grad, wanted)
    assert torch.equal(torch.get_rng_state(), after)
