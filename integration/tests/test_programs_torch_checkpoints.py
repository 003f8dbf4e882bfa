"""Checkpoints as programs for torch.compile write them: beside eager, and recomputed as torch's partitioners do."""

import functools
import warnings

import pytest
import torch
import torch._dynamo
from beside_eager import Programs, attempt
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import fxstack

program = Programs()
aten = torch.ops.aten
once = functools.partial(checkpoint, use_reentrant=False)
reentrant = functools.partial(checkpoint, use_reentrant=True)


def matrix():
    return torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()


# --- beside eager --------------------------------------------------------------------------------


@program(breaks=0, graphs=1)
def without_use_reentrant(c):
    x = matrix()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        c(lambda x: checkpoint(torch.sin, x) * 2)(x).sum().backward()
    return x, [str(warning.message) for warning in caught]


@program()
def without_use_reentrant_under_warnings_that_are_errors(c):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return attempt(c(lambda x: checkpoint(torch.sin, x)), matrix())


@program(breaks=0, graphs=1)
def integers_out_of_a_reentrant_checkpoint(c):
    x = matrix()
    y, place = c(lambda x: reentrant(lambda x: (x.sin(), x.argmax()), x))(x)
    y.sum().backward()
    return x, y, place


@program(breaks=0, graphs=1)
def parts_of_a_sequence(c):
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
    x = matrix()
    c(lambda x: checkpoint_sequential(model, 2, x, use_reentrant=False))(x).sum().backward()
    return model, x


@program(breaks=0, graphs=1)
def results_of_all_kinds(c):
    x = matrix()
    out = c(lambda x: once(lambda x: {"a": x.sin(), "b": [x.cos(), None, 3], "x": x}, x))(x)
    (out["a"].sum() + out["b"][0].sum()).backward()
    return x, out["b"][1:], out["x"] is x


@program(breaks=0, graphs=1)
def effects_inside(c):
    shapes, model = [], nn.Module()
    model.calls = 0

    def body(x):
        model.calls += 1
        shapes.append(x.shape)
        return x.sin() * x

    c(lambda x: once(body, x))(matrix())
    return shapes, model.calls


@program(breaks=0)
def compiled_inside_of_a_checkpoint(c):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    compiled, x = c(model), matrix()
    for run in (once, reentrant):
        run(compiled, x).sum().backward()
    return x, [p.grad for p in model.parameters()]


test_equals_eager = program.tests()


# --- recomputed as in torch ----------------------------------------------------------------------


def sigmoid_of_product(x, y):
    return torch.sigmoid(torch.matmul(x, y))


def twice(x, y):
    z = reentrant(sigmoid_of_product, torch.sin(x), y)
    return reentrant(sigmoid_of_product, torch.sin(z), y)


def products(x):
    x = x.cos()
    for _ in range(3):
        x = torch.mm(x, x)
    return x.cos()


def gated(x, y):
    return torch.sigmoid(torch.matmul(torch.matmul(x, y), y)) * y


def policy(answer, _context, op, *_args, **_kwargs):
    return answer if op is aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


def selected(function, answer):
    contexts = functools.partial(create_selective_checkpoint_contexts, functools.partial(policy, answer))
    return lambda *args: once(function, *args, context_fn=contexts)


def every_second():
    count = {"mm": 0}

    def choose(_context, op, *_args, **_kwargs):
        count["mm"] += op is aten.mm.default
        return op is aten.mm.default and count["mm"] % 2 == 1

    return create_selective_checkpoint_contexts(choose)


RECOMPUTED = {
    "reentrant": lambda x, y: reentrant(sigmoid_of_product, torch.sin(x), y),
    "not reentrant": lambda x, y: once(sigmoid_of_product, torch.sin(x), y),
    "no random numbers": lambda x, y: once(sigmoid_of_product, x.sin(), y, preserve_rng_state=False),
    "two checkpoints": twice,
    "one after the other": lambda x, y: once(products, once(products, x)) * y,
    "one in the other": lambda x, y: once(lambda x: torch.mm(once(lambda x: x.sin().cos(), x), x), x) * y,
    "used outside": lambda x, y: once(lambda x: x.exp().sin(), x).cos() * y,
    "must recompute": selected(gated, CheckpointPolicy.MUST_RECOMPUTE),
    "must save": selected(gated, CheckpointPolicy.MUST_SAVE),
    "every second": lambda x, y: once(gated, x, y, context_fn=every_second),
    "dropout": lambda x, y: once(lambda x: nn.functional.dropout(torch.mm(x, x).sin(), 0.5).cos(), x) * y,
}
COUNTED = (aten.mm.default, aten.sigmoid.default, aten.sin.default, aten.cos.default)


def counts(compile_, fn, args, partition_fn):
    """The number of operators of each kind in forward and backward, the result and the gradients."""
    found = []

    def count(graph, _inputs):
        found.append([len(graph.graph.find_nodes(op="call_function", target=op)) for op in COUNTED])
        return graph

    backend = aot_autograd(fw_compiler=count, bw_compiler=count, partition_fn=partition_fn)
    torch.manual_seed(0)
    result = compile_(fn, backend=backend, fullgraph=True)(*args)
    result.sum().backward()
    return found, (result, [arg.grad for arg in args])


def two_tensors():
    return [TwoTensor(matrix().detach(), matrix().detach() + i).requires_grad_() for i in range(2)]


@pytest.mark.parametrize("partition_fn", [default_partition, min_cut_rematerialization_partition])
@pytest.mark.parametrize("name", RECOMPUTED)
def test_operators_are_recomputed_as_in_torch(name, partition_fn):
    torch._dynamo.reset()
    fn = RECOMPUTED[name]
    theirs, expected = counts(torch.compile, fn, (matrix(), matrix()), partition_fn)
    ours, actual = counts(fxstack.compile, fn, (matrix(), matrix()), partition_fn)
    assert ours == theirs
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("partition_fn", [default_partition, min_cut_rematerialization_partition])
def test_subclasses_are_recomputed_as_in_torch(partition_fn):
    torch._dynamo.reset()
    fn = RECOMPUTED["must save"]
    theirs, _ = counts(torch.compile, fn, two_tensors(), partition_fn)
    ours, (result, _gradients) = counts(fxstack.compile, fn, two_tensors(), partition_fn)
    assert ours == theirs
    torch.testing.assert_close(result.b, fn(*two_tensors()).b)


def test_checkpoints_are_numbered_in_the_order_of_entry():
    numbers = {}

    def backend(graph, _inputs):
        nodes = graph.graph.nodes
        numbers.update({node.name: node.meta["ac_graph_id"] for node in nodes if "ac_graph_id" in node.meta})
        return graph.forward

    x = matrix()
    fxstack.compile(lambda x: once(lambda x: once(torch.sin, x).cos(), x).tan(), backend=backend)(x)
    assert sorted(numbers) == ["cos", "sin"]
    assert numbers["cos"] < numbers["sin"]
