"""Both ways with torch's own ahead-of-time layer: our partitioners under it, its graphs and partitioners here."""

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import aot_function, aot_module, min_cut_rematerialization_partition
from joint_programs import PROGRAMS, rand, residual_chain
from joints import compare, demand_values_before_the_update, mutating_joint, trace_joint
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config
from torch._functorch.partitioners import default_partition

from fxstack_interchange import load, save, verify
from fxstack_partition import (
    JointGraph,
    PartitionOptions,
    as_partition_fn,
    check_partition,
    corpus,
    from_partition_fn,
    partition,
    simulate,
)
from fxstack_partition.budgets.frontier import frontier
from fxstack_partition.budgets.search import COSTS
from fxstack_partition.extraction.merge import analyze_merged
from fxstack_partition.joint.cost import WorkModel

UNCHECKED = {
    "default": from_partition_fn(default_partition, check=False),
    "min_cut": from_partition_fn(min_cut_rematerialization_partition, check=False),
}
INCUMBENTS = {
    "default": from_partition_fn(default_partition),
    "min_cut": from_partition_fn(min_cut_rematerialization_partition),
}


def run_as_it_is(module, _inputs):
    return module


def same_under_aot(fn, *inputs, name="min_cut", **options):
    compiled = aot_function(fn, fw_compiler=run_as_it_is, partition_fn=as_partition_fn(name), **options)
    for _ in range(2):
        results = []
        for run in (fn, compiled):
            mine = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
            torch.manual_seed(0)
            out = run(*mine)
            sum((o * o).sum() for o in (out if isinstance(out, tuple | list) else (out,))).backward()
            results.append([*(out if isinstance(out, tuple | list) else (out,)), *(x.grad for x in mine)])
        torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("name", ["save_all", "min_cut", "budget"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_aot_function_with_our_partitioner_equals_eager(program, name):
    fn, inputs = PROGRAMS[program]
    same_under_aot(fn, *inputs(), name=name)


def test_symbolic_sizes_under_aot():
    same_under_aot(residual_chain, rand(4, 6), rand(6, 6), dynamic=True)


def test_an_updated_input_under_aot():
    def fn(x, w):
        x.add_(1)
        return x * w

    x, w = torch.randn(3), rand(3)
    compiled = aot_function(fn, fw_compiler=run_as_it_is, partition_fn=as_partition_fn("min_cut"))
    mine, theirs = x.clone(), x.clone()
    out, expected = compiled(mine, w), fn(theirs, w)
    torch.testing.assert_close((out, mine), (expected, theirs))
    grads = [torch.autograd.grad(o.sum(), w)[0] for o in (out, expected)]
    torch.testing.assert_close(*grads)


def test_a_module_under_aot():
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    compiled = aot_module(module, run_as_it_is, partition_fn=as_partition_fn("min_cut"))
    x = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), module(x))
    expected = torch.autograd.grad(module(x).sum(), list(module.parameters()))
    got = torch.autograd.grad(compiled(x).sum(), list(module.parameters()))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_with_our_partitioner(dynamic):
    backend = aot_autograd(fw_compiler=run_as_it_is, partition_fn=as_partition_fn("min_cut"))
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    for rows in (3, 5):
        x = torch.randn(rows, 4, requires_grad=True)
        out = compiled(x)
        torch.testing.assert_close(out, model(x))
        got, expected = (torch.autograd.grad(o.sum(), x)[0] for o in (out, model(x)))
        torch.testing.assert_close(got, expected)


nn = torch.nn
REAL = {
    "transformer": lambda: (
        nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
        torch.randn(2, 5, 16),
    ),
    "convolutions": lambda: (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.AdaptiveAvgPool2d(2)),
        torch.randn(2, 3, 8, 8),
    ),
    "language": lambda: (
        nn.Sequential(nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 11), nn.LogSoftmax(-1)),
        torch.randint(11, (3, 4)),
    ),
}


@pytest.mark.parametrize("name", ["min_cut", "budget"])
@pytest.mark.parametrize("model", REAL)
def test_torch_compile_of_models_with_our_partitioner(model, name):
    backend = aot_autograd(fw_compiler=run_as_it_is, partition_fn=as_partition_fn(name))
    module, x = REAL[model]()
    compiled = torch.compile(module, backend=backend)
    state = {key: value.clone() for key, value in module.state_dict().items()}
    results = []
    for run in (module, compiled):
        module.load_state_dict(state)
        out = run(x)
        grads = torch.autograd.grad(out.square().sum(), list(module.parameters()))
        results.append((out, grads, [b.clone() for b in module.buffers()]))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("incumbent", INCUMBENTS)
@pytest.mark.parametrize("program", ["mlp", "residual_chain", "attention", "conv_relu"])
def test_torch_partitioners_work_here(program, incumbent):
    fn, inputs = PROGRAMS[program]
    joint = trace_joint(fn, *inputs())
    part = partition(joint, INCUMBENTS[incumbent])
    compare(joint, part, inputs())


@pytest.mark.parametrize("name", ["softmaxes", "unet_symbolic"])
def test_merged_repetitions_are_no_error(name):
    """torch's min-cut merges equal computations first."""
    joint = corpus.load(name)
    check_partition(joint, partition(joint, INCUMBENTS["min_cut"]))


def test_torch_drawing_random_numbers_again_draws_from_the_kept_state():
    def masked(x):
        x = torch.native_dropout(x.sin(), 0.5, True)[0].exp()
        return torch.native_dropout(x, 0.5, True)[0].exp().sum(0)

    inputs = (rand(64, 64),)
    joint = trace_joint(masked, *inputs)
    with config.patch(activation_memory_budget=0.1):
        part = partition(joint, INCUMBENTS["min_cut"])
    assert "native_dropout" in part.recomputed
    for each in (part, partition(joint, INCUMBENTS["default"])):
        compare(joint, each, inputs)


@pytest.mark.parametrize("incumbent", INCUMBENTS)
def test_updated_inputs_are_saved_as_copies(incumbent):
    joint = mutating_joint()
    part = partition(joint, INCUMBENTS[incumbent])
    demand_values_before_the_update(part)
    assert simulate(part).saved_bytes == 4 * torch.float32.itemsize


def test_no_point_of_torchs_budgets_is_better_than_all_of_ours():
    """Batch norm, whose updated statistics both have to copy where they compute it again."""
    joint = corpus.load("mlp_symbolic")
    facts = analyze_merged(joint, PartitionOptions())
    curve = [c for cost in COSTS for c in frontier(facts, PartitionOptions(cost=cost))]
    costs = WorkModel(joint, PartitionOptions())
    for budget in (0.1, 0.7, 1.0):
        with config.patch(activation_memory_budget=budget):
            part = partition(joint, UNCHECKED["min_cut"])
        first = {n.name for n in part.forward.graph_module.graph.nodes}
        again = first.intersection(part.recomputed)
        seconds = costs.seconds(n for n in joint.graph_module.graph.nodes if n.name in again)
        peak = simulate(part).peak
        assert any(c.peak <= peak and c.seconds <= seconds * 1.000001 for c in curve)


@pytest.mark.parametrize("incumbent", INCUMBENTS)
@pytest.mark.parametrize("name", ["softmaxes", "convnext", "gpt2_symbolic", "mlp_symbolic"])
def test_no_worse_than_torch_on_the_corpus(name, incumbent):
    joint = corpus.load(name)
    ours, theirs = simulate(partition(joint)), simulate(partition(joint, UNCHECKED[incumbent]))
    assert ours.peak <= theirs.peak
    assert ours.saved_bytes <= theirs.saved_bytes


def aot_joint(fn, *inputs, **options):
    """The joint graph that torch hands to a partition_fn, taken in before it is cut."""
    found = []

    def keep(module, args, *, num_fwd_outputs, static_lifetime_input_indices=None):
        found.append(
            JointGraph.from_aot(
                module,
                num_fwd_outputs=num_fwd_outputs,
                static_lifetime_input_indices=static_lifetime_input_indices or (),
            )
        )
        return default_partition(module, args, num_fwd_outputs=num_fwd_outputs)

    aot_function(fn, fw_compiler=run_as_it_is, partition_fn=keep, **options)(*inputs)
    return found[0]


@pytest.mark.parametrize("dynamic", [False, True])
def test_joint_graphs_of_torch_are_joint_graphs_here(dynamic, tmp_path):
    def fn(x, w):
        return F.gelu(x @ w).sum(0), x.sin()

    joint = aot_joint(fn, rand(3, 4), rand(4, 5), dynamic=dynamic)
    verify(joint)
    save(joint, tmp_path / "joint.fxg")
    for graph in (joint, load(tmp_path / "joint.fxg")):
        part = partition(graph)
        verify(part.forward)
        verify(part.backward)
        assert "mm" in part.saved
