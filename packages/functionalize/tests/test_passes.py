"""The passes from a captured graph to a functional or a joint graph: their order, examples and texts."""

import pass_examples
import pytest
import torch
from helpers import run_graph, save_everything
from pass_examples import PassLog
from torch.fx import symbolic_trace

from fxstack_functionalize import AotOptions, aot, trace_inference, trace_joint
from fxstack_functionalize.passes import STAGES
from fxstack_interchange.passes import StoppedAfterPass, observed

NAMES = {name: [step.name for step in passes] for name, passes in STAGES.items()}


def example(name, fn):
    """Print what a pass changes in the trace of ``fn``, a function of a vector."""
    training = name in NAMES["joint"] and name not in NAMES["inference"]
    stage = "joint" if training else "inference" if name in NAMES["inference"] else "functionalize"
    trace = trace_joint if training else trace_inference
    x = torch.ones(3, requires_grad=training)
    print(pass_examples.changed(stage, name, lambda: trace(symbolic_trace(fn), [x])))


def hooked(name, fn, *, early=True):
    """The same for saved-tensor hooks that halve and double what the backward reads."""

    def run():
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x / 2, lambda x: x * 2):
            options = AotOptions(saved_tensor_hooks="inline_before_partition" if early else "inline")
            x = torch.ones(3, requires_grad=True)
            given = {"fw_compiler": run_graph, "partitioner": save_everything, "options": options}
            return aot(symbolic_trace(fn), [x], **given)

    print(pass_examples.changed("hooks", name, run))


@pytest.mark.parametrize("stage", STAGES)
def test_examples(stage):
    namespace = {"example": example, "hooked": hooked, "torch": torch}
    assert pass_examples.failures(STAGES[stage], namespace) == []


def layer(x):
    x = x * 1
    x.exp()
    return x.mul_(2).sin()


def run(log, *, grad=True):
    with observed(log):
        return aot(
            symbolic_trace(layer),
            [torch.ones(3, requires_grad=grad)],
            fw_compiler=run_graph,
            partitioner=save_everything,
        )


@pytest.mark.parametrize(("grad", "stage"), [(True, "joint"), (False, "inference")])
def test_an_observer_sees_each_pass_in_order(grad, stage):
    log = PassLog()
    run(log, grad=grad)
    expected = [("functionalize", n) for n in NAMES["functionalize"]] + [(stage, n) for n in NAMES[stage]]
    assert [entry[:2] for entry in log.seen] == expected


@pytest.mark.parametrize("grad", [True, False])
def test_a_pass_changes_the_text_or_says_why_not(grad):
    log = PassLog()
    run(log, grad=grad)
    texts = [text for _, _, text, _ in log.seen]
    for before, after, (_, name, _, why) in zip(texts, texts[1:], log.seen[1:], strict=False):
        assert (before == after) == (why is not None), name


TRACED = [(stage, name) for stage, names in NAMES.items() if stage != "hooks" for name in names]


@pytest.mark.parametrize(("stage", "name"), TRACED)
def test_a_stopped_stage_leaves_nothing_behind(stage, name):
    grad = stage == "joint"
    with pytest.raises(StoppedAfterPass):
        run(PassLog(stop=name), grad=grad)
    x = torch.ones(3, requires_grad=grad)
    torch.testing.assert_close(run(PassLog(), grad=grad)(x), layer(torch.ones(3)))
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
