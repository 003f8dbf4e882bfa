"""The passes of this package: their order, examples and texts."""

from dataclasses import replace
from unittest import mock

import pass_examples
import pytest
import torch
from inductor_checks import FAST, TABLE, trace
from pass_examples import PassLog
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import fxstack_inductor as fi
from fxstack_inductor.freezing import packing
from fxstack_inductor.passes import STAGES
from fxstack_interchange.passes import StoppedAfterPass, observed

NAMES = {name: [step.name for step in passes] for name, passes in STAGES.items()}
IMAGES, INDEX = ((1, 2, 4, 4), (2, 2, 1, 1), (2,), (2,)), torch.arange(4)
DEPTHWISE = ((1, 4, 8, 8), (4, 1, 1, 1))
BOXED_PASSES = ("check_indices",)
GPU_PASSES = (
    "move_numbers",
    "join_gradients",
    "lay_out_images",
    "split_reductions",
    "sum_columns",
    "combine_launches",
)


def examples(stage):
    """The function ``example`` of the docstrings of a stage: the inputs are of size 4 by 4 unless told; i is an index."""

    def example(name, fn, *shapes, dynamic=False):
        on_gpu = stage == "triton" or name in GPU_PASSES
        shapes = shapes or ((4, 4),) * fn.__code__.co_argcount
        names = fn.__code__.co_varnames
        inputs = [INDEX if name == "i" else torch.ones(shape) for name, shape in zip(names, shapes)]
        graph = on_fake_gpu(fn, shapes) if name in GPU_PASSES else trace(fn, *inputs, symbolic=dynamic)
        print(
            pass_examples.changed(
                stage, name, lambda: run(stage, graph, on_gpu=on_gpu, boxed=name in BOXED_PASSES)
            )
        )

    functions = {"norm": norm, "embedded_twice": embedded_twice}
    return {"example": example, "torch": torch, "IMAGES": IMAGES, "DEPTHWISE": DEPTHWISE, **functions}


def embedded_twice(x):
    gradients = (torch.ops.aten.embedding_dense_backward(x, x[:, 0].long(), 8, -1, False) for _ in range(2))
    return next(gradients) + next(gradients)


def norm(x, mean, variance):
    return torch.batch_norm(x, None, None, mean, variance, False, 0, 1, False)


def on_fake_gpu(fn, shapes):
    with FakeTensorMode():
        inputs = [torch.empty(shape, device="cuda") for shape in shapes]
    return make_fx(fn, decomposition_table=TABLE, tracing_mode="fake")(*inputs)


def run(stage, graph, *, on_gpu=False, boxed=False):
    if stage == "freeze":
        for node in graph.graph.find_nodes(op="placeholder")[1:]:
            node.target = f"l_self_buffers_{node.name}"
        with mock.patch.object(packing, "faster", lambda *_: True):
            return fi.compile_graph(graph, (), replace(FAST, freezing=True), inference=True)
    if on_gpu or stage == "triton":
        return fi.lower(graph, (), FAST, target="cuda")
    return fi.compile_graph(graph, (), FAST, boxed=boxed)


@pytest.mark.parametrize("stage", STAGES)
def test_examples(stage):
    known = [step for step in STAGES[stage] if packing.available() or not step.name.startswith("pack_")]
    assert pass_examples.failures(known, examples(stage)) == []


def layer(x, w):
    x.mul_(2)
    return (x @ w.exp()).t().softmax(-1), x.sum(0)


def watched(log, stage):
    graph = trace(layer, torch.randn(4, 4), torch.randn(4, 4))
    with observed(log):
        return run(stage, graph)


@pytest.mark.parametrize("stage", STAGES)
def test_an_observer_sees_each_pass_in_order(stage):
    log = PassLog()
    watched(log, stage)
    before = ["freeze"] if stage == "freeze" else []
    stages = [*before, "lower", "schedule", "triton" if stage == "triton" else "c"]
    expected = [(each, name) for each in stages for name in NAMES[each]]
    assert [entry[:2] for entry in log.seen] == expected


@pytest.mark.parametrize("stage", ["freeze", "c", "triton"])
def test_a_pass_changes_the_text_or_says_why_not(stage):
    log = PassLog()
    watched(log, stage)
    for (one, _, before, _), (other, name, after, why) in zip(log.seen, log.seen[1:], strict=False):
        if one == other:
            assert (before == after) == (why is not None), name


@pytest.mark.parametrize(("stage", "name"), [(s, n) for s, names in NAMES.items() for n in names])
def test_a_stopped_stage_leaves_nothing_behind(stage, name):
    with pytest.raises(StoppedAfterPass):
        watched(PassLog(stop=(stage, name)), stage)


def test_a_graph_is_compiled_after_a_stopped_one():
    graph = trace(layer, torch.randn(4, 4), torch.randn(4, 4))
    for stage in ("lower", "schedule", "c"):
        with observed(PassLog(stop=(stage, NAMES[stage][-1]))), pytest.raises(StoppedAfterPass):
            fi.compile_graph(graph, (), FAST, on_failure=print)
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    expected = layer(x.clone(), w)
    for got, want in zip(fi.compile_graph(graph, (), FAST)(x, w), expected, strict=True):
        torch.testing.assert_close(got, want)
